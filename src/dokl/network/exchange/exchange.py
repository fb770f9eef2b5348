"""The record of an exchange: who with whom, in which order, how often, and what stays private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput, UnknownName
from dokl.network.exchange import conserving
from dokl.network.exchange.attacks import Attack
from dokl.network.exchange.rules import MEAN, Faults, Mixing, Sending
from dokl.network.graphs import check_weights

ORDERS = ("cta", "atc")
AVERAGES = ("none", "uniform", "weighted")
ALL = Sending()


@dataclass(frozen=True)
class Exchange:
    """How nodes share: who with whom, in which order, how often, and what stays private.

    weights    (K, K) stochastic matrix, dense or CSR; a sequence of them, used in turn step by
               step (a changing network); a recipe of either; None: every node alone.
    order      "cta" combine-then-adapt (the paper; a node delivers its adapted vector) or
               "atc" adapt-then-combine (delivers the combined vector; same a-priori errors).
    every      combine at every n steps.
    intercept  size c of a private constant feature, never shared: f = theta'z + c b. 0: none.
    average    what is delivered: the last vector ("none"), or the mean of all of them, "uniform"
               or "weighted" by step number (the first iterates of Pegasos are wild).
    sending    what a node sends when it is time: all of it, unless given.
    mixing     how what arrived is mixed: the weighted mean, unless given.
    attack     for simulations: one of `attacks`; results are of the honest nodes then.
    faulty     the numbers of the attacking nodes.
    """

    weights: Any = None
    order: str = "atc"
    every: int = 1
    intercept: float = 0.0
    average: str = "none"
    sending: Sending = ALL
    mixing: Mixing = MEAN
    attack: Attack | None = None
    faulty: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        if self.average not in AVERAGES:
            raise UnknownName("average", self.average, AVERAGES)
        check_whole("every", self.every, of="steps")
        if not (np.isfinite(self.intercept) and self.intercept >= 0):
            raise BadInput(f"intercept must be finite and at least 0, got {self.intercept!r}")
        object.__setattr__(self, "faulty", tuple(int(node) for node in self.faulty))
        if bool(self.faulty) != (self.attack is not None):
            raise BadInput("attack and faulty belong together: give both, or neither")
        if len(set(self.faulty)) < len(self.faulty) or min(self.faulty, default=0) < 0:
            raise BadInput(f"faulty must be the numbers of different nodes, got {self.faulty}")

    @cached_property
    def plain(self) -> bool:
        """Whether combining is the product A theta and nothing else."""
        return self.sending == ALL and self.mixing == MEAN and self.attack is None

    @cached_property
    def faults(self) -> Faults | None:
        """The attack and its nodes; None: all are honest."""
        return None if self.attack is None else Faults(self.attack, self.faulty)

    @cached_property
    def seats(self) -> int:
        """How many memories of what was sent a node keeps: one for each graph in turn, where what
        is sent depends on it, since other neighbours listen at each.
        """
        several = len(self.graphs)
        return several // gcd(several, self.every) if several and self.sending.remembers else 1

    def honest(self, K: int) -> Array:
        """The numbers of the honest nodes; BadInput where faulty ones are not among K nodes."""
        if max(self.faulty, default=0) >= K or len(self.faulty) >= K:
            raise BadInput(f"faulty is {self.faulty}, and of {K} nodes at least one must be honest")
        return np.setdiff1d(np.arange(K), self.faulty)

    @cached_property
    def flows(self) -> list[Any]:
        """For each graph what conserves a total: see `conserving`."""
        return [conserving.flows(A) for A in self.graphs]

    @cached_property
    def doubly(self) -> bool:
        """Whether the columns of all weights sum to one, as their rows do."""
        return all(conserving.is_doubly(A) for A in self.graphs)

    @cached_property
    def symmetric(self) -> bool:
        """Whether all links go both ways, and weigh the same."""
        return all(conserving.is_symmetric(A) for A in self.graphs)

    @cached_property
    def graphs(self) -> list[Any]:
        """The combination matrices, checked, as CSR arrays; empty when every node is alone.

        Rows must sum to one, and all graphs of a sequence together must connect the network. The
        theory also needs columns that sum to one; `graphs.check_weights` checks it.
        """
        if self.weights is None:
            return []
        several = isinstance(self.weights, Sequence) or getattr(self.weights, "ndim", 2) == 3
        each = self.weights if several else [self.weights]
        checked = [check_weights(A, doubly=False, connected=False) for A in each]
        for A in checked:
            A.eliminate_zeros()  # a stored zero is no link
        if not checked:
            raise BadInput("weights are an empty sequence: give a matrix, or None to work alone")
        if all(A.shape == checked[0].shape for A in checked):
            if all(A.nnz == A.shape[0] and (A.diagonal() == 1).all() for A in checked):
                return []  # identities: alone, and nothing to compute
            check_weights(sum(checked) / len(checked), doubly=False)
            return checked
        raise BadInput(f"weights change their size: {[A.shape for A in checked]}")
