"""Attacks, as values: what a faulty node sends to its neighbours, or what it learns from.

sign_flip       its vector times -p
noise           its vector and Gaussian noise of standard deviation p
isolation       to each neighbour what keeps its weighted mean where it is, as if it were alone
little          "a little is enough": the honest mean less p standard deviations, number by number
inflated        its vector times p; of sums these are rows that never were
stale           for ever what it sent at exchange `since`
flipped_labels  honest, but learned from targets of the other sign, or of the mirrored class

Faulty nodes know everything (`Seen`), work together, and begin at exchange `since`. Otherwise they
take part like the others: they learn from their rows and mix what they receive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array, Block, is_sparse
from dokl.base.errors import BadInput
from dokl.base.random_numbers import generator


@dataclass(frozen=True)
class Seen:
    """What a faulty node knows when it sends to a node: everything.

    turn, attacker: number of the exchange, and of the faulty node. own: what it would honestly
    send, (P,); last_sent: its last message. target: what the node has. honest: (H, P) what the
    node's honest neighbours send it, with weights (H,); weight: of all its faulty neighbours.
    """

    turn: int
    attacker: int
    own: Array
    last_sent: Array
    target: Array
    honest: Array
    weights: Array
    weight: float
    seed: int = 0


@dataclass(frozen=True)
class Attack:
    """One attack; message: (seen, p) -> what is sent, targets: (Y, p) -> what is learned from.

    p: its strength. since: the exchange with which false messages begin. seed: of its randomness.
    """

    name: str
    message: Callable[[Seen, float], Array] | None = None
    targets: Callable[[Array, float], Array] | None = None
    p: float = 1.0
    since: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not np.isfinite(self.p):
            raise BadInput(f"the strength p of an attack must be finite, got {self.p!r}")
        if not (isinstance(self.since, int | np.integer) and self.since >= 0):
            raise BadInput(f"since must be the number of an exchange, from 0, got {self.since!r}")

    def speaks(self, turn: int) -> bool:
        """Whether messages lie at this exchange."""
        return self.message is not None and turn >= self.since


def _flip(seen: Seen, p: float) -> Array:
    return -p * seen.own


def sign_flip(p: float = 1.0, since: int = 0) -> Attack:
    """Its vector times -p."""
    return Attack("sign_flip", _flip, p=p, since=since)


def _noisy(seen: Seen, p: float) -> Array:
    rng = generator(seen.seed, ("attack", seen.turn, seen.attacker))
    return np.asarray(seen.own + p * rng.standard_normal(seen.own.shape))


def noise(p: float = 1.0, since: int = 0, seed: int = 0) -> Attack:
    """Its vector and Gaussian noise of standard deviation p."""
    return Attack("noise", _noisy, p=p, since=since, seed=seed)


def _isolating(seen: Seen, p: float) -> Array:
    pull = seen.weights @ (seen.honest - seen.target)
    return np.asarray(seen.target - p * pull / seen.weight)


def isolation(since: int = 0) -> Attack:
    """To each neighbour what keeps its weighted mean where it is: it then works alone."""
    return Attack("isolation", _isolating, since=since)


def _little(seen: Seen, p: float) -> Array:
    each = seen.honest if len(seen.honest) else seen.target[None]
    return np.asarray(each.mean(axis=0) - p * each.std(axis=0))


def little(p: float = 1.5, since: int = 0) -> Attack:
    """ "A little is enough" (Baruch, Baruch, Goldberg 2019): no outlier, and always to one side."""
    return Attack("little", _little, p=p, since=since)


def _scale(seen: Seen, p: float) -> Array:
    return p * seen.own


def inflated(p: float = 10.0, since: int = 0) -> Attack:
    """Its vector times p: of sums, rows that never were; every ratio in them stays right."""
    return Attack("inflated", _scale, p=p, since=since)


def _last_message(seen: Seen, p: float) -> Array:
    return seen.last_sent


def stale(since: int = 10) -> Attack:
    """For ever what it sent at the exchange before `since`; with 0, the zeros it began with."""
    return Attack("stale", _last_message, since=since)


def _mirror(Y: Array, p: float) -> Array:
    return -p * Y if Y.shape[1] == 1 else Y[:, ::-1]


def flipped_labels(p: float = 1.0) -> Attack:
    """Learns from -p y; with several outputs from them in reverse, so that classes are mistaken."""
    return Attack("flipped_labels", None, _mirror, p)


ATTACKS: dict[str, Callable[..., Attack]] = {
    made.__name__: made
    for made in (sign_flip, noise, isolation, little, inflated, stale, flipped_labels)
}


def attacked_rows(attack: Attack | None, faulty: Sequence[int], block: Block) -> Block:
    """The block with the targets that faulty nodes learn from; rows that others use are copied."""
    if attack is None or attack.targets is None:
        return block
    index = block.index.copy()
    there = index[:, list(faulty)] >= 0
    rows, place = np.unique(index[:, list(faulty)][there], return_inverse=True)
    mine = index[:, list(faulty)]
    mine[there] = block.X.shape[0] + place
    index[:, list(faulty)] = mine
    if is_sparse(block.X):
        from scipy.sparse import vstack

        X = vstack([block.X, block.X[rows]], format="csr")
    else:
        X = np.concatenate([block.X, block.X[rows]])
    Y = np.concatenate([block.Y, attack.targets(block.Y[rows], attack.p)])
    weight = block.weight
    weight = None if weight is None else np.concatenate([weight, weight[rows]])
    return Block(X, Y, weight, index)
