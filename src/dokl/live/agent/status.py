"""What an agent tells about itself: one dictionary for `/status`, `/metrics` and the dashboard."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl import __version__
from dokl.live.agent.curve import FAR_OFF
from dokl.live.process import process_facts
from dokl.live.protocol.messages import REASONS
from dokl.live.sums import SumsLearner
from dokl.live.sums.learner import LEVEL
from dokl.network.exchange.rules import sum_of_squares

if TYPE_CHECKING:
    from dokl.live.agent.runtime import Agent

SOON = 14.0  # days before its end in which a certificate is a problem


def of(agent: Agent) -> dict[str, Any]:
    """Everything, as JSON can write it; called with the agent's lock held."""
    now, store = agent.clock.now(), agent.store
    facts = agent.protocol.facts(now)
    neighbours = {
        peer: _neighbour(agent, peer, known, now) for peer, known in facts["neighbours"].items()
    }
    return {
        "dokl": __version__,
        "network": agent.network.about.name,
        "name": agent.name,
        "fingerprint": agent.learner.fingerprint,
        "incarnation": store.incarnation,
        "pid": os.getpid(),
        "started": agent.started,
        "now": agent.clock.wall(),
        "uptime_s": agent.uptime,
        "samples": store.samples,
        "learned": agent.protocol.learned,
        "step": agent.protocol.step,
        "error": _error(agent),
        "newest": _newest(agent),
        "theta_norm": float(np.sqrt(sum_of_squares(agent.protocol.state.theta))),
        "disagreement": facts["disagreement"],
        "exchange": _exchange(agent, facts),
        "sharing": _sharing(agent, facts),
        "neighbours": neighbours,
        "bytes_in": sum(agent.transport.bytes_in.values()),
        "bytes_out": sum(agent.transport.bytes_out.values()),
        "refused": _refused(agent, facts),
        "requests": {k: agent.counts[k] for k in ("accepted", "refused", "busy", "repeated")},
        "queue": {
            "rows": agent.queued,
            "limit": agent.network.limits.queue_rows,
            "seconds": round(agent.queued_seconds, 3),
            "limit_seconds": agent.network.limits.queue_seconds,
        },
        "waiting_labels": store.waiting_count,
        "waiting_expired": store.expired,
        "unknown_labels": agent.counts["unknown"],
        "out_of_range": {"rule": agent.inputs.outside.rule, "columns": agent.inputs.outside.counts},
        "journal": _journal(agent),
        "process": process_facts(),
        "durability": agent.network.durability.mode,
        "source": None if agent.source is None else dict(agent.source),
        "certificate_expires": agent.certificate_expires,
        "assumptions": list(facts["assumptions"]),
        "problems": _problems(agent, facts),
        "clock_jumps": agent.counts["clock jumps"],
    }


def _refused(agent: Agent, facts: dict[str, Any]) -> dict[str, int]:
    """Messages not used, by reason; the transport has thrown away what is too large."""
    large = sum(agent.transport.refused.values())
    found = Counter(facts["refused"])
    found["size"] += large
    return {reason: found[reason] for reason in (*REASONS, *(found.keys() - set(REASONS)))}


def _problems(agent: Agent, facts: dict[str, Any]) -> list[str]:
    # Where things lie is nobody's business who may only ask; the log has it.
    found = [text.replace(f"{agent.network.path.parent}/", "") for text in agent.problems.values()]
    found = [text.replace(f"{agent.store.path.parent}/", "") for text in found]
    ends = agent.certificate_expires
    days = None if ends is None else (ends - agent.clock.wall()) / 86400
    if days is not None and days < SOON:
        when = f"runs out in {days:.1f} days" if days > 0 else f"ran out {-days:.1f} days ago"
        found.append(f"the certificate {when}: dokl network renew {agent.network.path.name}")
    found += facts["problems"]
    return found + [text for text in (_far_off(agent), agent.transport.problem) if text]


def _far_off(agent: Agent) -> str:
    """Whether the error is beyond all that was usual, for seconds, and not by chance."""
    alarm, usual = agent.curve.alarm, agent.curve.usual
    if usual is None or not alarm.told(agent.clock.now()):
        return ""
    return (
        f"the error of new samples {'is' if alarm.raised else 'was'} more than {FAR_OFF:g} times "
        f"the usual, {usual:.3g}: look at these samples, here and at the neighbours"
    )


def _error(agent: Agent) -> dict[str, Any]:
    kind = "mse" if agent.learner.classes is None else "mistakes"
    return {"kind": kind, "recent": agent.curve.recent, "curve": list(agent.curve.points)}


def _newest(agent: Agent) -> dict[str, Any] | None:
    """The newest rows, predicted and measured; of labels there is nothing to draw."""
    if agent.learner.classes is not None:
        return None
    level = LEVEL if isinstance(agent.learner, SumsLearner) else None
    target = agent.network.inputs.target
    return {"target": target, "coverage": level, "rows": agent.newest.rows()}


def _exchange(agent: Agent, facts: dict[str, Any]) -> dict[str, Any]:
    policy = agent.network.exchange
    keys = ("mode", "every_seconds", "every_samples", "dtype", "clip")
    return {**{key: getattr(policy, key) for key in keys}, "combines": facts["combines"]}


def _sharing(agent: Agent, facts: dict[str, Any]) -> dict[str, Any] | None:
    """What sharing is worth here, and whose rows are known, by method "squares"."""
    if not isinstance(agent.learner, SumsLearner):
        return None
    return {**agent.learner.worth(agent.protocol.state), **(facts["sums"] or {})}


def _journal(agent: Agent) -> dict[str, Any]:
    store = agent.store
    kept = {"bytes": store.bytes, "rows_since_snapshot": store.rows_since_snapshot}
    return {**kept, "failures": agent.counts["store failures"], "lost_rows": store.lost}


def _neighbour(agent: Agent, peer: str, known: dict[str, Any], now: float) -> dict[str, Any]:
    last, distance2 = known["last_received"], known["distance2"]
    return {
        "up": known["up"],
        "age_s": None if last is None else max(0.0, now - last),
        "received": known["received"],
        "refused": known["refused"] + agent.transport.refused.get(peer, 0),
        "bytes_in": agent.transport.bytes_in.get(peer, 0),
        "bytes_out": agent.transport.bytes_out.get(peer, 0),
        "weight": known["weight"],
        "not_used": known["why"] or None,
        "refuses_us": known["told"] or None,
        "distance": None if distance2 is None else float(np.sqrt(distance2)),
        "step": known["step"],
        "learned": known["learned"],
    }
