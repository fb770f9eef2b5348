"""Nodes that cooperate, as one JAX program for all nodes of all realizations.

A chunk of T steps goes in three passes, as in `cooperating`: the shared members from exchange to
exchange; what they said being known, the others in long blocks; then mixtures and the widths of
intervals, step by step. Members of as many features are one axis: E members of N nodes are E N
learners, in that order. Steps that only fill up a chunk have rows of weight 0.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dokl import mixture
from dokl.engines import jax_blocks, jax_sums
from dokl.engines.jax_blocks import BlockNumbers, Known, Rows, folded
from dokl.engines.jax_squares import MapKind, features_of
from dokl.engines.jax_sums import Added
from dokl.intervals import LEVELS, PACE, REMEMBERED
from dokl.methods.cooperation import DUE
from dokl.methods.cooperation.node import BEGINNING, LATELY


class CrewGroup(NamedTuple):
    """Members of as many features; constant: of none. lasting: they forget nothing; fades: so fast
    that a P + b I is written as one matrix after each block.
    """

    members: tuple[int, ...]
    D: int
    constant: bool
    lasting: bool
    fades: bool


class CrewLayout(NamedTuple):
    """What a compilation depends on besides shapes. bases: whose errors each member corrects."""

    map: MapKind
    own_map: bool
    runs: int
    K: int
    bases: tuple[int | None, ...]
    own: tuple[int, ...]
    shared: tuple[CrewGroup, ...]
    rest: tuple[CrewGroup, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """All but the node's own."""
        return tuple(i for i in range(len(self.bases)) if i not in self.own)


class Steps(NamedTuple):
    """x: (T, runs, K, d), y: (T, N, m), w: (T, N) what is learned weighs, and shown: (T, N)."""

    x: Any
    y: Any
    w: Any
    shown: Any


class Turns(NamedTuple):
    """at: (pieces, B) steps of each piece, T where there is none; place: (T,) where a step stands
    among them; graph: (pieces,) over which nodes exchange after a piece, after: (T,) the same for
    steps, first: () before all; the last graph is none.
    """

    at: Any
    place: Any
    graph: Any
    after: Any
    first: Any


class Shared(NamedTuple):
    """What a group of shared members knows, its sums, and seen: (E N,) rows when last solved."""

    known: Known
    sums: Added
    seen: Any


class Gains(NamedTuple):
    """A mixture of each node. gain, square: (N, E), largest: (N,)."""

    gain: Any
    square: Any
    largest: Any


class CrewAccounts(NamedTuple):
    """reach, own_reach, energy: (N, m, L); covered: (N, L), error: (N, 3), learned, count: (N,)."""

    reach: Any
    own_reach: Any
    energy: Any
    covered: Any
    error: Any
    learned: Any
    count: Any


class Held(NamedTuple):
    """All that nodes know, by groups."""

    shared: tuple[Shared, ...]
    rest: tuple[Known, ...]
    alone: Gains
    all: Gains
    accounts: CrewAccounts


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=5)
def learned(
    layout: CrewLayout, B: int, map: Any, numbers: Any, flows: Any, held: Held, steps: Steps,
    turns: Turns,
) -> tuple[Held, Any]:  # fmt: skip
    """A chunk, and what was said of each row before: (T, N, m).

    B: rows of a block where there is no exchange; numbers: those of all groups, and the bound on
    errors; flows: (graphs + 1, runs, K, K), the last of zeros.
    """
    of_shared, of_rest, bound = numbers
    shared, said = _together(layout, map, of_shared, flows, held.shared, steps, turns)
    rest, said = _apart(layout, B, map, of_rest, held.rest, steps, said)
    F, V = (jnp.stack(part, axis=2) for part in zip(*(said[i] for i in sorted(said)), strict=True))
    mixtures, accounts, mean = _mixed(layout, flows, bound, held, steps, turns, F, V)
    return Held(shared, rest, *mixtures, accounts), mean


# -- members -----------------------------------------------------------------------------------
def _features(layout: CrewLayout, map: Any, x: Any) -> Any:
    """(runs, K, B, d) -> (N, B, D)."""
    features = jax.vmap(
        partial(features_of, layout.map), in_axes=(0 if layout.own_map else None, 0)
    )
    return features(map, x).reshape(-1, x.shape[2], layout.map.D)


def _narrowed(group: CrewGroup, Z: Any) -> Any:
    return jnp.ones_like(Z[..., :1]) if group.constant else Z[..., : group.D]


def _times(E: int, array: Any) -> Any:
    """For E members alike."""
    return jnp.tile(array, (E,) + (1,) * (array.ndim - 1))


def _together(
    layout: CrewLayout, map: Any, numbers: Any, flows: Any, shared: Any, steps: Steps, turns: Turns
) -> tuple[Any, dict[int, Any]]:
    """Shared members, piece by piece; what each says and how sure it is: (T, N, m)."""
    if not layout.shared:
        return shared, {}
    none = len(flows) - 1

    def one(shared: Any, step: Any) -> Any:
        (x, y, w, shown), graph = step
        Z, given = _features(layout, map, x), []
        for group, settings, each in zip(layout.shared, numbers, shared, strict=True):
            rows = Rows(_narrowed(group, Z), y, w, shown)
            rows = Rows(*(_times(len(group.members), part) for part in rows))
            given.append((settings, each.known, rows))
        new, told = [], []
        found = jax_blocks.several(given)
        each = zip(layout.shared, shared, given, found, strict=True)
        for group, old, (settings, _, rows), (known, said) in each:
            known = folded(known) if group.fades else known
            sums = jax_sums.added(old.sums, rows.Z, rows.Y, said.weight)
            sums = jax.tree.map(partial(_exchanged, layout, flows[graph]), sums)
            now = Shared(known, sums, old.seen)
            new.append(_solved_where_due(layout.K, group, settings, now, graph < none))
            told.append(_said(said))
        return tuple(new), tuple(told)

    pieces = _gathered(steps, turns.at)
    shared, told = lax.scan(one, shared, (pieces, turns.graph))
    shared = tuple(each._replace(known=folded(each.known)) for each in shared)
    found = dict[int, Any]()
    for group, part in zip(layout.shared, told, strict=True):
        found |= _by_member(group, part, steps, turns.place)
    return shared, found


def _by_member(group: CrewGroup, told: Any, steps: Steps, place: Any) -> dict[int, Any]:
    """(pieces, 2, E N, B, m) -> of each member, (T, N, m) twice."""
    in_turn = jnp.moveaxis(told, 3, 1)  # (pieces, B, 2, E N, m)
    each = in_turn.reshape(-1, 2, len(group.members), *steps.y.shape[1:])[place]
    return {i: (each[:, 0, e], each[:, 1, e]) for e, i in enumerate(group.members)}


def _gathered(steps: Steps, at: Any) -> Steps:
    """Steps (T, ...) in pieces: x: (pieces, runs, K, B, d), the others (pieces, N, B, ...)."""
    more = (jnp.concatenate([part, jnp.zeros_like(part[:1])])[at] for part in steps)
    x, *others = more
    return Steps(jnp.moveaxis(x, 1, 3), *(jnp.moveaxis(part, 1, 2) for part in others))


def _said(told: jax_blocks.RowsTold) -> Any:
    """Means and variances: (2, N, B, m)."""
    return jnp.stack([told.f, told.noise * (1.0 + told.q)[..., None]])


def _exchanged(layout: CrewLayout, flow: Any, array: Any) -> Any:
    """(E N, ...) after nodes have given and taken."""
    held = array.reshape(-1, layout.runs, layout.K, array[0].size)
    return (held + flow @ held).reshape(array.shape)


def _solved_where_due(
    K: int, group: CrewGroup, settings: BlockNumbers, now: Shared, came: Any
) -> Any:
    """As `Cooperation.received`: those to whom enough has come are solved anew."""
    total = K * now.sums.rows
    due = came & (total - now.seen > (DUE * total if group.lasting else 0.0))

    def solve(now: Shared) -> Shared:
        whole = Added(*(K * part for part in now.sums))
        theta, P, left = jax_sums.known_of(settings.rho, whole)
        ones = jnp.ones_like(total)
        known = Known(theta, P, ones, 0.0 * ones, *jax_sums.noise_of(whole.weight, left))
        sums = now.sums
        if not group.lasting:
            gone = settings.lam ** jnp.maximum(0.0, total - now.seen)
            faded = jax_sums.faded(settings.rho, gone, whole, theta, P, left)
            sums = Added(now.sums.rows, *(part / K for part in faded[1:]))
        new: Shared = jax.tree.map(partial(_where, due), Shared(known, sums, total), now)
        return new

    return lax.cond(due.any(), solve, lambda now: now, now)


def _where(which: Any, new: Any, old: Any) -> Any:
    return jnp.where(which.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def _apart(
    layout: CrewLayout,
    B: int,
    map: Any,
    numbers: Any,
    rest: Any,
    steps: Steps,
    said: dict[int, Any],
) -> tuple[Any, dict[int, Any]]:
    """Own members and corrections, in blocks; what all members say, with what was said before."""
    in_order = np.arange(len(steps.y))
    blocks = _gathered(steps, in_order.reshape(-1, B))
    bases = {i: _in_blocks(said[i][0], B) for i in set(layout.bases) if i is not None}

    def one(rest: Any, step: Any) -> Any:
        (x, y, w, shown), bases = step
        Z, given, told = _features(layout, map, x), [], []
        for group, settings, known in zip(layout.rest, numbers, rest, strict=True):
            of = [layout.bases[i] for i in group.members]
            targets = jnp.concatenate([y if b is None else y - bases[b] for b in of])
            others = (_times(len(of), part) for part in (w, shown))
            rows = Rows(_times(len(of), _narrowed(group, Z)), targets, *others)
            given.append((settings, known, rows))
        new = []
        for group, (known, found) in zip(layout.rest, jax_blocks.several(given), strict=True):
            new.append(folded(known) if group.fades else known)
            told.append(_said(found))
        return tuple(new), tuple(told)

    rest, told = lax.scan(one, rest, (blocks, bases))
    found = dict(said)
    for group, part in zip(layout.rest, told, strict=True):
        for i, (mean, variance) in _by_member(group, part, steps, in_order).items():
            base = layout.bases[i]
            found[i] = mean + (0.0 if base is None else said[base][0]), variance
    return tuple(folded(known) for known in rest), found


def _in_blocks(said: Any, B: int) -> Any:
    """(T, N, m) -> (blocks, N, B, m)."""
    return jnp.moveaxis(said.reshape(-1, B, *said.shape[1:]), 1, 2)


# -- mixtures and widths -----------------------------------------------------------------------
def _mixed(
    layout: CrewLayout,
    flows: Any,
    bound: Any,
    held: Held,
    steps: Steps,
    turns: Turns,
    F: Any,
    V: Any,
) -> tuple[tuple[Gains, Gains], CrewAccounts, Any]:
    """Both mixtures of each node, and all its accounts; F, V: (T, N, E, m)."""
    own, others = np.array(layout.own), np.array(layout.others, np.int64)

    def one(carry: Any, step: Any) -> Any:
        (alone, both, accounts), (F, V, y, w, shown, after) = carry, step
        alone, f, v = _row(alone, F[:, own], V[:, own], y, w, bound)
        F, V = (
            jnp.concatenate([mine[:, None], part[:, others]], axis=1)
            for mine, part in ((f, F), (v, V))
        )
        both, mean, variance = _row(both, F, V, y, w, bound)
        accounts = _accounted(accounts, y, w, shown, (mean, f), variance)
        reach = _exchanged(layout, flows[after], accounts.reach)
        return (alone, both, accounts._replace(reach=reach)), mean

    begun = held.accounts._replace(
        reach=_exchanged(layout, flows[turns.first], held.accounts.reach)
    )
    each = F, V, steps.y, steps.w, steps.shown, turns.after
    (alone, both, accounts), mean = lax.scan(one, (held.alone, held.all, begun), each)
    return (alone, both), accounts, mean


def _row(gains: Gains, F: Any, V: Any, y: Any, w: Any, bound: Any) -> tuple[Gains, Any, Any]:
    """One row of each node, as `mixture.mixed` with gains in units of the variance. F, V: (N, E,
    m), y: (N, m), w: (N,).
    """
    positive = jnp.maximum(gains.gain, 0.0)
    anyone = (positive > 0.0).any(axis=1, keepdims=True)
    scale = jnp.where(anyone, gains.largest[:, None] + gains.square, 1.0)
    share = jnp.where(anyone, positive / scale, 1.0)
    share = (share / share.sum(axis=1, keepdims=True))[..., None]
    mean = (share * F).sum(axis=1)
    apart = mean[:, None] - F
    largest = jnp.maximum(jnp.abs(F).max(axis=(1, 2)), jnp.abs(y).max(axis=1))[:, None, None]
    apart = jnp.where(jnp.abs(apart) <= mixture.ROUNDING * largest, 0.0, apart)
    variance = (share * (V + apart * apart)).sum(axis=1)
    reach = bound * jnp.sqrt(variance)
    r = 2.0 * (apart * jnp.clip(mean - y, -reach, reach)[:, None]).sum(axis=2)
    best = jnp.maximum(V.mean(axis=2).min(axis=1), 1e-300)[:, None]
    r -= mixture.CURVE * (apart * apart).sum(axis=2)
    r = jnp.clip(r / best, -mixture.MOST, mixture.MOST) * w[:, None]
    square = r * r
    gains = Gains(
        gains.gain + r,
        gains.square + square,
        jnp.maximum(gains.largest, square.max(axis=1)),
    )
    return gains, mean, variance


def _accounted(
    old: CrewAccounts, y: Any, w: Any, shown: Any, said: tuple[Any, Any], variance: Any
) -> CrewAccounts:
    """Widths as `reach.follow`, errors and coverage as `node` keeps account of them."""
    learns = (w > 0)[:, None, None]
    score = (jnp.abs(y - said[0]) / jnp.sqrt(jnp.maximum(variance, 1e-300)))[..., None]
    q = jnp.maximum(0.0, old.reach + old.own_reach)
    inside = (learns & (score <= lax.cummax(q, axis=2))).mean(axis=1)
    g = jnp.where(learns, 1.0 - jnp.array(LEVELS) - (score > q), 0.0)
    energy = jnp.where(g == 0.0, old.energy, (1.0 - 1.0 / REMEMBERED) * old.energy + g * g)
    down = 0.5 * jnp.minimum(PACE * g / jnp.sqrt(3.0 * energy), q)
    late = jnp.where(old.count >= BEGINNING, w, 0.0)
    errors = [((y - f) ** 2).mean(axis=1) for f in said]
    return CrewAccounts(
        old.reach - down,
        old.own_reach - down,
        energy,
        _lately(old.covered, w, inside),
        _lately(old.error, late, jnp.stack([*errors, jnp.ones_like(w)], axis=1)),
        _lately(old.learned[:, None], w, jnp.ones_like(w)[:, None])[:, 0],
        old.count + shown,
    )


def _lately(total: Any, w: Any, value: Any) -> Any:
    """`node.lately` of one row: (N, n)."""
    w = w[:, None]
    return jnp.where(w > 0, (1.0 - 1.0 / LATELY) * total + w * value, total)
