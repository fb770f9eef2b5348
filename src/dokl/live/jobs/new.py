"""`dokl network new`: a description and its certificates, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from dokl.live.jobs.inputs import Sample, agreed_inputs, chosen_model
from dokl.live.jobs.places import Places, placed


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
) -> Network:
    """Write the description of a network, and certificates if it is to be secure.

    model: what is given of [model], see `chosen_model`. Nothing is written if anything is wrong.
    `say` is told what was guessed of the sample.
    """
    check_new(path, overwrite)
    nodes, links = placed(places)
    inputs, rows = agreed_inputs(sample, say)
    security = "mtls" if secure else "insecure-loopback"
    certificates = f"{path.stem}.certs" if secure else None
    today = datetime.now(UTC).date().isoformat()
    about = About(_network_name(name, path), links, security, certificates, begun=today)
    chosen = chosen_model(model, inputs, rows)
    network = Network(about, chosen, inputs, exchange, nodes=nodes, path=path)
    wrong = layout_problems(network)
    if wrong:
        raise BadInput("; ".join(wrong))
    _write(network, days, overwrite)
    return network


def _network_name(name: str | None, path: Path) -> str:
    try:
        return check_name(path.stem if name is None else name, "network name")
    except BadInput as error:
        raise BadInput(f"{error} (--name)") from None


def _write(network: Network, days: int, overwrite: bool) -> None:
    if not network.secure:
        atomic_text(network.path, text(network))
        return
    authority = Authority.new(network.about.name)
    content = authority.files()
    for name in network.names:
        content |= node_files(network, name, authority, days)
    with new_folder(network.folder, content, overwrite):
        atomic_text(network.path, text(network))
