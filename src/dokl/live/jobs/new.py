"""`dokl network new`: a description and its certificates, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dokl.base.errors import BadInput
from dokl.base.files import atomic_text, check_new
from dokl.live.certificates import NODE_DAYS, Authority, node_files
from dokl.live.certificates.files import new_folder
from dokl.live.description import About, ExchangePolicy, Network, check_name
from dokl.live.description.inspection import layout_problems
from dokl.live.description.text import text
from dokl.live.jobs.inputs import Sample, agreed_inputs, chosen_model, learned_map
from dokl.live.jobs.places import Places, placed
from dokl.network import agreed
from dokl.network.agreed import LearnedMap


def new(
    path: Path,
    places: Places,
    sample: Sample,
    model: Mapping[str, Any],
    exchange: ExchangePolicy,
    *,
    name: str | None = None,
    secure: bool = True,
    days: int = NODE_DAYS,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    learns_map: bool | None = None,
) -> Network:
    """Write the description of a network, and certificates if it is to be secure.

    model: what is given of [model], see `chosen_model`. Nothing is written if anything is wrong.
    `say` receives the guesses about the sample. learns_map: by method "squares", whether the map
    is learned from the sample or drawn; None: learned where there is a sample.
    """
    check_new(path, overwrite)
    nodes, links = placed(places)
    inputs, rows = agreed_inputs(sample, say)
    if sample.columns and model.get("share") != "rows":
        raise BadInput(
            "--columns is for --share rows: vectors and sums need a kernel width, or a map, which "
            "are settled by --sample"
        )
    security = "mtls" if secure else "insecure-loopback"
    certificates = f"{path.stem}.certs" if secure else None
    today = datetime.now(UTC).date().isoformat()
    about = About(_network_name(name, path), links, security, certificates, begun=today)
    chosen = chosen_model(model, inputs, rows)
    made = None
    if (
        chosen.squares
        and not chosen.rows
        and (learns_map if learns_map is not None else rows.y is not None)
    ):
        made = learned_map(chosen, inputs, rows)
        beside = path.with_suffix(".map")
        check_new(beside, overwrite)
        chosen = replace(chosen, map=beside.name, D=made.D)
        _say_places(made, nodes, say)
    network = Network(about, chosen, inputs, exchange, nodes=nodes, path=path, given_map=made)
    wrong = layout_problems(network)
    if wrong:
        raise BadInput("; ".join(wrong))
    _write(network, days, overwrite)
    return network


def _say_places(
    made: LearnedMap, nodes: Mapping[str, Any], say: Callable[[str], None] | None
) -> None:
    """What the sample showed about the nodes, and which of them it did not name."""
    if say is None:
        return
    if made.places is None:
        say(
            f"the map has {made.D} features, by {made.rows:,} rows of the sample, which are of no "
            "node in particular: --node-column names the column of the nodes"
        )
        return
    known = sorted(set(nodes) & set(made.nodes))
    say(f"the map has {made.D} features, by {made.rows:,} rows, and a place for {_few(known)}")
    unknown = sorted(set(nodes) - set(made.nodes))
    if unknown:
        say(f"the sample has no rows of {_few(unknown)}: these begin in the middle of the others")


def _few(names: Sequence[str]) -> str:
    """Names for people, the first ones of many."""
    shown = ", ".join(names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _network_name(name: str | None, path: Path) -> str:
    try:
        return check_name(path.stem if name is None else name, "network name")
    except BadInput as error:
        raise BadInput(f"{error} (--name)") from None


def _write(network: Network, days: int, overwrite: bool) -> None:
    if network.given_map is not None:  # first: a description without its map is of no use
        agreed.save(network.given_map, network.path.with_name(str(network.model.map)))
    if not network.secure:
        atomic_text(network.path, text(network))
        return
    authority = Authority.new(network.about.name)
    content = authority.files()
    for name in network.names:
        content |= node_files(network, name, authority, days)
    with new_folder(network.folder, content, overwrite):
        atomic_text(network.path, text(network))
