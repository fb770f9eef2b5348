"""A changed description for a running agent: what it takes over, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dokl.base.errors import BadInput, FingerprintMismatch
from dokl.live.certificates import expires
from dokl.live.description import Network, read

LEARNING = (
    "loss", "loss_parameter", "schedule", "mu", "lam", "n0", "power", "eps", "intercept",
    "method", "ridge",
)  # fmt: skip


def reload_description(path: Path, name: str, old: Network) -> Network:
    """The description as it is now, if node `name` can take it over while it runs."""
    new = read(path)
    if name not in new.names:
        raise BadInput(f"{path}: node {name!r} is no longer in it: stop this agent")
    if old.fingerprint in (each.fingerprint for each in new.former):
        raise BadInput(
            f"{path}: columns were changed: restart this agent, which then learns its kept rows by "
            "the columns of now"
        )
    if new.fingerprint != old.fingerprint:
        what = f"{path}: a running agent keeps its features"
        raise FingerprintMismatch(what, old.fingerprint, new.fingerprint)
    _check_unchanged(old, new, name)
    return new


def _check_unchanged(old: Network, new: Network, name: str) -> None:
    """Refuse what a running agent cannot take over, rather than to pretend that it had."""
    other = [key for key in LEARNING if getattr(old.model, key) != getattr(new.model, key)]
    found = [f"[model] {key}" for key in other]
    found += ["[durability] mode"] if old.durability.mode != new.durability.mode else []
    steps = [network.exchange.mode == "lockstep" for network in (old, new)]
    found += ["[exchange] mode, to or from lockstep,"] if steps[0] != steps[1] else []
    same = replace(old.inputs, fingerprint=new.inputs.fingerprint)
    found += ["[inputs]"] if same != new.inputs else []
    if old.sources.get(name) != new.sources.get(name):
        found += [f"[sources.{name}]"]
    if found:
        raise BadInput(f"{new.path}: {found[0]} was changed: restart this agent for that")


def changes(old: Network, new: Network, name: str) -> dict[str, list[str]]:
    """Who came and who went, of the network and of the neighbours; what did not change is left out.

    Sections of the description that differ are named.
    """
    pairs = {
        "nodes": (old.names, new.names),
        "neighbours": (old.neighbours(name), new.neighbours(name)),
        "revoked": (old.about.revoked, new.about.revoked),
    }
    found = {}
    for key, (before, now) in pairs.items():
        moved = [f"-{each}" for each in before if each not in now]
        found[key] = moved + [f"+{each}" for each in now if each not in before]
    sections = ("about", "exchange", "limits", "durability", "nodes", "routes")
    found["sections"] = [key for key in sections if getattr(old, key) != getattr(new, key)]
    return {key: values for key, values in found.items() if values}


def expiry(network: Network, name: str) -> float | None:
    """When the node's certificate runs out, in seconds since 1970."""
    ends = expires(network, name)
    return None if ends is None else ends.timestamp()
