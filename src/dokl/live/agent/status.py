"""What a service reports about itself: one dictionary for `/status`, `/metrics` and the
dashboard.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl import __version__
from dokl.live.agent.curve import FAR_OFF
from dokl.live.listeners import ListeningLearner
from dokl.live.process import process_facts
from dokl.live.protocol.messages import (
    OF_ROWS,
    OF_SUMS,
    REASONS,
    release_number,
    release_text,
)
from dokl.network.exchange.rules import sum_of_squares

if TYPE_CHECKING:
    from dokl.live.agent.runtime import Agent
    from dokl.live.agent.service import Service

SOON = 14.0  # days before its end in which a certificate is a problem


def of(service: Service) -> dict[str, Any]:
    """Everything, as JSON can write it; called with the service's lock held."""
    store, limits = service.store, service.description.limits
    return {
        "dokl": __version__,
        "network": service.description.title,
        "name": service.name,
        "fingerprint": service.learner.fingerprint,
        "incarnation": store.incarnation,
        "pid": os.getpid(),
        "started": service.started,
        "now": service.clock.wall(),
        "uptime_s": service.uptime,
        "learned": service.node.learned,
        "step": service.node.step,
        "error": _error(service),
        "newest": _newest(service),
        "theta_norm": float(np.sqrt(sum_of_squares(service.node.state.theta))),
        "requests": {k: service.counts[k] for k in ("accepted", "refused", "busy", "repeated")},
        "queue": {
            "rows": service.queued,
            "limit": limits.queue_rows,
            "seconds": round(service.queued_seconds, 3),
            "limit_seconds": limits.queue_seconds,
        },
        "waiting_labels": store.waiting_count,
        "waiting_expired": store.expired,
        "unknown_labels": service.counts["unknown"],
        "out_of_range": {
            "rule": service.inputs.outside.rule,
            "columns": service.inputs.outside.counts,
        },
        "journal": _journal(service),
        "process": process_facts(),
        "durability": service.description.durability.mode,
        "source": None if service.source is None else dict(service.source),
        "problems": _problems(service),
        "clock_jumps": service.counts["clock jumps"],
    }


def of_agent(agent: Agent) -> dict[str, Any]:
    """The same of a node of a network, with its neighbours."""
    now = agent.clock.now()
    facts, found = agent.protocol.facts(now), of(agent)
    neighbours = {
        peer: _neighbour(agent, peer, known, now) for peer, known in facts["neighbours"].items()
    }
    return {
        **found,
        "disagreement": facts["disagreement"],
        "exchange": _exchange(agent, facts),
        "sharing": _sharing(agent, facts),
        "neighbours": neighbours,
        "bytes_in": sum(agent.transport.bytes_in.values()),
        "bytes_out": sum(agent.transport.bytes_out.values()),
        "refused": _refused(agent, facts),
        "certificate_expires": agent.certificate_expires,
        "assumptions": list(facts["assumptions"]),
        "problems": [*found["problems"], *_network_problems(agent, facts)],
    }


def _refused(agent: Agent, facts: dict[str, Any]) -> dict[str, int]:
    """Messages not used, by reason; the transport has thrown away what is too large. Every reason
    is there from the start: an alert on the increase of one misses the first of a new series.
    """
    large = sum(agent.transport.refused.values())
    found = Counter(facts["refused"])
    found["size"] += large
    reasons = (*REASONS, *OF_SUMS, *OF_ROWS)
    return {reason: found[reason] for reason in (*reasons, *(found.keys() - set(reasons)))}


def _problems(service: Service) -> list[str]:
    # Where things lie is nobody's business who may only ask; the log has it.
    folders = service.description.path.parent, service.store.path.parent
    found = list(service.problems.values())
    for folder in folders:
        found = [text.replace(f"{folder}/", "") for text in found]
    return found + [text for text in (_far_off(service),) if text]


def _network_problems(agent: Agent, facts: dict[str, Any]) -> list[str]:
    ends, found = agent.certificate_expires, list[str]()
    days = None if ends is None else (ends - agent.clock.wall()) / 86400
    if days is not None and days < SOON:
        when = f"runs out in {days:.1f} days" if days > 0 else f"ran out {-days:.1f} days ago"
        found.append(f"the certificate {when}: dokl network renew {agent.network.path.name}")
    found += facts["problems"]
    return found + [text for text in (agent.transport.problem,) if text]


def _far_off(service: Service) -> str:
    """Whether the error is beyond all that was usual, for seconds, and not by chance."""
    alarm, usual = service.curve.alarm, service.curve.usual
    if usual is None or not alarm.is_reported(service.clock.now()):
        return ""
    return (
        f"the error of new samples {'is' if alarm.raised else 'was'} more than {FAR_OFF:g} times "
        f"the usual, {usual:.3g}: look at these samples, here and at the neighbours"
    )


def _error(service: Service) -> dict[str, Any]:
    kind = "mse" if service.learner.classes is None else "mistakes"
    return {"kind": kind, "recent": service.curve.recent, "curve": list(service.curve.points)}


def _newest(service: Service) -> dict[str, Any] | None:
    """The newest rows, predicted and measured; of labels there is nothing to draw."""
    if service.learner.classes is not None:
        return None
    target, rows = service.description.inputs.target, service.newest.rows()
    return {"target": target, "coverage": service.coverage, "rows": rows}


def _exchange(agent: Agent, facts: dict[str, Any]) -> dict[str, Any]:
    policy = agent.network.exchange
    keys = ("mode", "every_seconds", "every_samples", "dtype", "clip")
    return {**{key: getattr(policy, key) for key in keys}, "combines": facts["combines"]}


def _sharing(agent: Agent, facts: dict[str, Any]) -> dict[str, Any] | None:
    """What sharing is worth here, and whose rows are known, by method "squares"."""
    if not isinstance(agent.learner, ListeningLearner):
        return None
    return {**agent.learner.worth(agent.protocol.state), **(facts["sums"] or {})}


def _journal(service: Service) -> dict[str, Any]:
    store = service.store
    kept = {"bytes": store.bytes, "rows_since_snapshot": store.rows_since_snapshot}
    return {**kept, "failures": service.counts["store failures"], "lost_rows": store.lost}


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
        "version": known["release"] or None,
        "other_version": known["release"] != release_text(release_number(__version__))
        if known["release"]
        else None,
        "distance": None if distance2 is None else float(np.sqrt(distance2)),
        "step": known["step"],
        "learned": known["learned"],
    }
