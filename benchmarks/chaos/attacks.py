"""A neighbour with a good certificate that lies: vectors, rows, or sums of rows that never were."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from lab import samples

from dokl.base.unlocked import one_thread
from dokl.learning.squares.sums import Sums
from dokl.live.agent.rolls import roll_of
from dokl.live.description import Network
from dokl.live.protocol import Protocol, batches
from dokl.live.protocol.effects import SendHello, SendTheta
from dokl.live.protocol.messages import HELLO, ROWS, SUMS, THETA, Message, Refused, pack, unpack
from dokl.live.transports.zenoh import ZenohTransport
from dokl.network.sums import origins
from dokl.network.sums.origins import Entry

FAULTY = "faulty"
EVERY = 0.1  # seconds


def attack(network: Network, how: str, seconds: float, seed: int, over: Callable[[], bool]) -> int:
    """Lie for so long, or until it is over; how many messages were sent. A product in several
    threads would wait for ever where another thread starts a process meanwhile: a fork ends them.
    """
    with (
        one_thread(),
        closing(ZenohTransport(network, FAULTY, lossless=network.model.rows)) as transport,
    ):
        transport.open()
        make = _sums if network.model.squares else _vectors
        say = (_rows if network.model.rows else make)(network, how, seed)
        end, sent = time.monotonic() + seconds, 0
        while time.monotonic() < end and not over():
            for what, data in say(transport):
                transport.send(what, data)
                sent += 1
            time.sleep(EVERY)
    return sent


Say = Callable[[ZenohTransport], list[tuple[str, bytes]]]


def _vectors(network: Network, how: str, seed: int) -> Say:
    """What a faulty node by method "gradient" sends: made of what it receives."""
    learner, rng = network.learner(), np.random.default_rng(seed)
    received: dict[str, Any] = {}
    incarnation, step = time.time_ns(), 0

    def say(transport: ZenohTransport) -> list[tuple[str, bytes]]:
        nonlocal step
        transport.events()
        for peer, _, data in transport.receive():
            try:
                found = unpack(data, fingerprint=learner.fingerprint, m=learner.m, D=learner.D)
            except Refused:
                continue
            if found.theta is not None:
                received[peer] = np.asarray(found.theta, np.float64)
        step += 1
        about = learner.fingerprint, learner.m, learner.D, len(network.neighbours(FAULTY))
        hello = Message(HELLO, *about, incarnation=incarnation, step=step, wall=time.monotonic())
        if not received:
            return [("hello", pack(hello))]
        attacked = _vector(how, np.mean(list(received.values()), axis=0), step, rng).astype(
            np.float32
        )
        counts = {"count": 1000, "learned": 1000, "theta": attacked}
        return [("theta", pack(replace(hello, kind=THETA, **counts)))]

    return say


def _vector(how: str, mean: Any, step: int, rng: np.random.Generator) -> Any:
    if how == "flipped":
        return -mean
    if how == "largest":
        return np.full(mean.shape, 1e5 / np.sqrt(mean.size))
    if how == "noise":
        return rng.normal(size=mean.shape) * 10.0
    return mean + 0.05 * step / np.sqrt(mean.size)  # drifting


def _sums(network: Network, how: str, seed: int) -> Say:
    """What a faulty node by method "squares" sends: an own node with wrong rows."""
    learner, rng = network.learner(), np.random.default_rng(seed)
    roll = roll_of(network, FAULTY)
    assert roll is not None
    near = network.neighbours(FAULTY)
    node = Protocol(learner, FAULTY, near, network.exchange, time.time_ns(), roll=roll)
    first: list[bytes] = []
    turn = 0

    def say(transport: ZenohTransport) -> list[tuple[str, bytes]]:
        nonlocal turn
        turn += 1
        now = time.monotonic()
        effects = _receive(node, transport, now)
        X, y = samples(20, int(rng.integers(2**31)))
        effects += node.samples(X, -y[:, None], now)
        effects += node.tick(now)
        messages = [("theta", e.data) for e in effects if isinstance(e, SendTheta)]
        messages += [("hello", e.data) for e in effects if isinstance(e, SendHello)]
        if how == "labels":
            return messages
        first.extend(data for what, data in messages if what == "theta" and len(first) < 20)
        if how == "stale":
            return [*messages, *(("theta", data) for data in first[turn % 20 :][:1])]
        own = learner.own_sums(node.state)
        entry = Entry(FAULTY, time.time_ns(), _spoiled(how, own, rng))
        sealed = roll.seals.seal(origins.to_bytes(entry))
        hellos = [each for each in messages if each[0] == "hello"]
        return [*hellos, ("theta", node._node.pack_body(SUMS, sealed, now))]

    return say


def _rows(network: Network, how: str, seed: int) -> Say:
    """What a faulty node that shares rows sends: an own node with wrong rows; rows in another's
    name; or two different batches under one number, again and again.
    """
    learner, rng = network.learner(FAULTY), np.random.default_rng(seed)
    roll = roll_of(network, FAULTY)
    assert roll is not None
    near = network.neighbours(FAULTY)
    node = Protocol(learner, FAULTY, near, network.exchange, time.time_ns(), roll=roll)
    context = node._way.context  # type: ignore[union-attr]
    first: list[bytes] = []
    turn = 0

    def batch(origin: str, now: float) -> tuple[str, bytes]:
        X, y = samples(20, int(rng.integers(2**31)))
        about = origin, time.time_ns(), 0, X, -y[:, None], 1.0, 2.0, batches.NOTHING
        sealed = roll.seals.seal(batches.pack_entry(context, *about))
        made = batches.pack_batches([batches.read_batch(context, sealed)], set())
        return "theta", node._node.pack_body(ROWS, made, now)

    def say(transport: ZenohTransport) -> list[tuple[str, bytes]]:
        nonlocal turn
        turn += 1
        now = time.monotonic()
        node.offset = time.time() - now
        node.at_once = 0  # it learns nothing of others
        effects = _receive(node, transport, now)
        X, y = samples(5, int(rng.integers(2**31)))
        faults = -y if how != "noise" else 10.0 * rng.normal(size=len(y))
        effects += node.samples(X, faults[:, None], now)
        effects += node.tick(now)
        messages = [("theta", e.data) for e in effects if isinstance(e, SendTheta)]
        messages += [("hello", e.data) for e in effects if isinstance(e, SendHello)]
        first.extend(data for what, data in messages if what == "theta" and len(first) < 20)
        if how == "stale":
            return [*messages, *(("theta", data) for data in first[turn % 20 :][:1])]
        if how == "forged":
            return [*messages, batch(str(rng.choice(near)), now)]
        return [*messages, batch(FAULTY, now)] if how == "forked" else messages

    return say


def _receive(node: Protocol, transport: ZenohTransport, now: float) -> list[Any]:
    """What a node wants done after what has come: neighbours that came or went, messages."""
    effects: list[Any] = []
    for peer, up in transport.events():
        effects += (node.peer_up if up else node.peer_lost)(peer, now)
    for peer, _, data in transport.receive():
        effects += node.message(peer, data, now)
    return effects


def _spoiled(how: str, own: Sums, rng: np.random.Generator) -> Sums:
    """Sums that are another's: n times the rows, noise, or turned round."""
    if how == "inflated":
        k = 5000
        return Sums(k * own.rows, k * own.weight, k * own.zz, k * own.zy, k * own.yy)
    if how == "noise":
        return replace(own, zy=own.zy + rng.normal(size=own.zy.shape) * own.weight)
    return replace(own, zz=-own.zz)
