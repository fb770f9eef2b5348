"""A network whose nodes are learners that also learn from others, simulated.

Every node has its own bank. One bank over (row, node) represents what each node has received, with
the delay of the farthest. At each step nodes with a row predict it first, by their own bank, by the
network's and by their corrections, mixed; then they learn it and share it (`sharing`).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.base.unlocked import one_thread
from dokl.learning import mixture as mixing
from dokl.learning.experts import bank as banks
from dokl.learning.experts import learn as learning
from dokl.learning.experts import predicting
from dokl.learning.experts.bank import Bank, Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.experts.scaling import Scaling
from dokl.network import listening
from dokl.network import node as nodes
from dokl.network import sharing as share
from dokl.network.corrections import errors_of
from dokl.network.node import BEGINNING, Errors, HeardErrors, NetworkNode
from dokl.network.sharing import NEVER, SUMMED, SentRows, SharingRule

# A row of less weight is predicted and not learned: its label never came.
LEAST_WEIGHT = 1e-20
# Bytes that the matrices of all own banks may take. Beyond, each has fewer centres.
OWN_BYTES = 4e9
# In `fit` of more nodes than this, one with fewer rows than that has no map of its own, as in
# `learn`: maps of thousands of nodes would take minutes, and twenty rows show little.
MANY_NODES, FEW_ROWS = 100, 30


@dataclass(frozen=True)
class BankNetwork:
    """K nodes that learn d inputs and m outputs. bank: over (row, node), None where nobody shares;
    rows: that not all nodes have received; steps: taken; sent: (K,) rows that each node has sent;
    units: how the bank's first map scaled inputs and targets, in which nodes learn corrections;
    traffic: bytes that all nodes together have to send over one link each.
    """

    sharing: SharingRule
    nodes: tuple[NetworkNode, ...]
    bank: Bank | None
    rows: SentRows
    steps: int
    sent: Array
    units: tuple[Scaling, Scaling] | None = None
    traffic: float = 0.0

    @property
    def K(self) -> int:
        """Nodes."""
        return len(self.nodes)

    @property
    def m(self) -> int:
        """Outputs."""
        return self.nodes[0].own.m

    @property
    def seen(self) -> Array:
        """Rows that each node has learned: (K,)."""
        return np.array([node.own.seen for node in self.nodes])

    @property
    def bytes(self) -> Array:
        """Bytes that each node has sent so far: (K,). Everything is passed on over every link."""
        return self.traffic * self.sharing.degree


def start(d: int, m: int, settings: Settings, sharing: SharingRule) -> BankNetwork:
    """A network that has seen nothing; settings: those of a single learner."""
    K = len(sharing.degree)
    own = replace(settings, most=_own_centres(settings, K))
    bank = None
    if sharing.degree.any():
        bank = banks.start(d + 1, m, _shared_settings(settings, sharing))
    first = nodes.start(d, m, own)  # arrays of records are never written to
    fresh = share.no_rows(d, m)
    return BankNetwork(sharing, (first,) * K, bank, fresh, 0, np.zeros(K, np.int64))


def _shared_settings(settings: Settings, sharing: SharingRule) -> Settings:
    """Settings of the network's bank."""
    if sharing.way == "rows":
        return listening.bank_settings(settings)
    return replace(settings, kinds=SUMMED, grouped=True, fixed_inputs=True)


def _own_centres(settings: Settings, K: int) -> int:
    """Centres of each node's own bank, so that all of them fit into OWN_BYTES."""
    most = settings.most
    while K * banks.matrix_bytes(settings.kinds, most) > OWN_BYTES and most > 50:
        most = max(50, int(0.9 * most))
    return most


# -- learning ------------------------------------------------------------------------------------
def learn(
    network: BankNetwork, X: Array, Y: Array, weight: Array, index: Array
) -> tuple[BankNetwork, Prediction]:
    """Rows X: (n, d), Y: (n, m) of positive weight, in the order of index: (steps, K), -1 where a
    node has none. Returns what was predicted for each row before it was learned.
    """
    Y, weight = limited(Y), np.minimum(weight, learning.HEAVIEST)
    step, owner = np.nonzero(index >= 0)
    at = index[step, owner]
    rows = SentRows(X[at], Y[at], weight[at], owner, step + network.steps, np.full(len(at), NEVER))
    with ThreadPoolExecutor(1) as beside:  # neither needs the other
        own = beside.submit(_learn_alone, network.nodes, rows)
        network, listened = _receive(network, rows, len(index))
        known, alone = own.result()
    network, out = replace(network, nodes=known), alone
    if listened is not None:
        network, out = _mix(network, rows, alone, listened)
    back = np.empty(len(X), np.int64)
    back[at] = np.arange(len(at))
    return network, Prediction(*(part[back] for part in vars(out).values()))


def _learn_alone(
    known: tuple[NetworkNode, ...], rows: SentRows
) -> tuple[tuple[NetworkNode, ...], Prediction]:
    """Every node's own bank after its rows, and what it predicted for each of them."""
    new, out = list(known), _empty(known[0].own, len(rows.X))
    for k, mine in _by_node(rows.node):
        own, found = _learn_one(known[k].own, rows[mine])
        new[k] = replace(known[k], own=own)
        _put(out, mine, found)
    return tuple(new), out


def _learn_one(own: Bank, rows: SentRows) -> tuple[Bank, Prediction]:
    """A bank after rows, some of which may have no label and are predicted alone."""
    out = _empty(own, len(rows.X))
    for part, labelled, weight in _runs(rows.weight):
        if labelled:
            own, found = learning.learn(own, rows.X[part], rows.Y[part], weight)
        else:
            found = predicting.predict_with_variance(own, rows.X[part])
        _put(out, part, found)
    return own, out


def _runs(weight: Array) -> list[tuple[slice, bool, Array | None]]:
    """Rows of weights (n,) in stretches with labels and without: which rows, whether they have
    any, and their weights, None where all rows count once.
    """
    if (weight == 1.0).all():
        return [(slice(0, len(weight)), True, None)]
    labelled = weight >= LEAST_WEIGHT
    ends = [0, *(np.flatnonzero(np.diff(labelled)) + 1).tolist(), len(weight)]
    return [(slice(i, j), bool(labelled[i]), weight[i:j]) for i, j in pairwise(ends)]


@dataclass(frozen=True)
class _Listened:
    """What the network's bank predicted for each row by what all nodes had received by then,
    whether it had a map: (n,), and its errors on what the row's node had received since its last
    row: (n, m). left: what each node has received since its last row.
    """

    shared: Prediction
    mapped: Array
    errors: Array
    left: tuple[HeardErrors, ...]


def _receive(
    network: BankNetwork, rows: SentRows, steps: int
) -> tuple[BankNetwork, _Listened | None]:
    """The network's bank after n steps in which these rows came."""
    bank, sharing, mapped = network.bank, network.sharing, np.zeros(len(rows.X), bool)
    if bank is None:
        return replace(network, steps=network.steps + steps), None
    labelled = rows.weight >= LEAST_WEIGHT
    waiting = network.rows.and_then(rows[labelled])
    waiting, sent, messages = share.send(sharing, waiting, network.sent)
    waiting = waiting[np.argsort(waiting.due, kind="stable")]
    out, X = _empty(bank, len(rows.X)), np.hstack([rows.X, rows.node[:, None]])
    received, done, end, traffic = 0, 0, network.steps + steps, network.traffic
    units, errors = network.units, np.zeros(rows.Y.shape)
    since = _Since.of(network)
    with one_thread():
        while done < len(X):
            now = int(rows.step[done])
            until = int(np.searchsorted(waiting.due, now, side="right"))
            if until > received:
                bank, more = _receive_rows(
                    bank, waiting[np.arange(received, until)], sharing, since
                )
                received, traffic = until, traffic + more
            next_due = int(waiting.due[until]) if until < len(waiting.due) else NEVER
            stop = int(np.searchsorted(rows.step, max(now + 1, min(next_due, end))))
            part = slice(done, stop)
            _put(out, part, predicting.predict_with_variance(bank, X[part]))
            since.take(errors[part], rows.node[part], labelled[part])
            if bank.now is not None:
                mapped[part], units = True, units or (bank.now.inputs, bank.now.targets)
            done = stop
    if sharing.way == "sums":
        traffic += messages * share.sum_bytes(_widths(bank), network.m)
    left = waiting[np.arange(received, len(waiting.due))]
    left = left[np.argsort(left.step, kind="stable")]
    about = {"rows": left, "steps": end, "sent": sent, "traffic": traffic, "units": units}
    network = replace(network, bank=bank, **about)  # type: ignore[arg-type]
    return network, _Listened(out, mapped, errors, since.each())


@dataclass
class _Since:
    """Errors of the network's bank on rows received since each node's newest row: (K, m), (K,)."""

    total: Array
    count: Array

    @classmethod
    def of(cls, network: BankNetwork) -> _Since:
        """As the nodes know them."""
        received = [node.heard for node in network.nodes]
        return cls(
            np.stack([each.total for each in received]), np.array([each.count for each in received])
        )

    def add(self, errors: Array) -> None:
        """Errors (n, m) of rows that all nodes receive."""
        self.total += errors.sum(axis=0)
        self.count += len(errors)

    def take(self, out: Array, node: Array, labelled: Array) -> None:
        """Write the means for rows (n, m) of nodes (n,), each of which begins again with a row that
        it learns.
        """
        for i, k in enumerate(node.tolist()):
            out[i] = self.total[k] / max(1, self.count[k])
            if labelled[i]:
                self.total[k], self.count[k] = 0.0, 0

    def each(self) -> tuple[HeardErrors, ...]:
        """Of each node."""
        pairs = zip(self.total, self.count.tolist(), strict=True)
        return tuple(HeardErrors(total.copy(), count) for total, count in pairs)


def _receive_rows(
    bank: Bank, rows: SentRows, sharing: SharingRule, since: _Since
) -> tuple[Bank, float]:
    """The network's bank after these rows, and the bytes that they and new maps took. Rows that
    that arrive not one by one, but in sums, show no errors.
    """
    before = bank.now
    X = np.hstack([rows.X, rows.node[:, None]])
    bank, found = learning.learn(bank, X, rows.Y, rows.weight)
    d, m = rows.X.shape[1], bank.m
    if sharing.way == "rows":
        if before is not None:
            since.add(errors_of(rows.Y, found.mean, found.variance))
        return bank, float(len(X) * share.row_bytes(d, m))
    if bank.now is before:
        return bank, 0.0
    # A new map: its sample travels, and every node's sums on it.
    sample = min(bank.kept.n, 4 * bank.settings.most)
    senders = len(np.unique(bank.kept.X[: bank.kept.n, -1]))
    resent = senders * share.sum_bytes(_widths(bank), m)
    return bank, float(sample * share.row_bytes(d, m) + resent)


def _widths(bank: Bank) -> list[int]:
    """Features of the bank's experts; none before it has a map."""
    if bank.now is None:
        return []
    return [bank.now.maps[kind.features].width(kind.width) for kind in bank.kinds]


def _mix(
    network: BankNetwork, rows: SentRows, alone: Prediction, listened: _Listened
) -> tuple[BankNetwork, Prediction]:
    """Every node's corrections and mixture after these rows, and what it predicted. Corrections
    begin with the first row for which the network had a map.
    """
    known, out = list(network.nodes), _empty(network.nodes[0].own, len(rows.X))
    for k, mine in _by_node(rows.node):
        mapped = listened.mapped[mine]
        first = int(np.argmax(mapped)) if mapped.any() else len(mine)
        for part in (mine[:first], mine[first:]):
            if len(part):
                known[k] = ready(network, known[k]) if listened.mapped[part[0]] else known[k]
                own, theirs = (_part(each, part) for each in (alone, listened.shared))
                given = rows[part], own, theirs, listened.errors[part]
                known[k], found = _mix_one(known[k], *given)
                _put(out, part, found)
    pairs = zip(known, listened.left, strict=True)
    return replace(network, nodes=tuple(replace(node, heard=left) for node, left in pairs)), out


def _mix_one(
    node: NetworkNode, rows: SentRows, alone: Prediction, shared: Prediction, errors: Array
) -> tuple[NetworkNode, Prediction]:
    out = _empty(node.own, len(rows.X))
    for part, labelled, weight in _runs(rows.weight):
        if labelled:
            own, theirs = _part(alone, part), _part(shared, part)
            given = rows.X[part], rows.Y[part], weight, own, theirs, errors[part]
            node, found = nodes.learn(node, *given)
            _put(out, part, found)
        else:
            for i in range(part.start, part.stop):  # each after what it has received
                one = slice(i, i + 1)
                own, theirs = _part(alone, one), _part(shared, one)
                _put(out, one, nodes.predict(node, rows.X[one], own, theirs, errors[i]))
    return node, out


def ready(network: BankNetwork, node: NetworkNode) -> NetworkNode:
    """The node with corrections, once the network has a map."""
    if network.units is None:
        return node
    inputs, targets = network.units
    return nodes.with_corrections(node, inputs, targets.size)


# -- all rows at once ------------------------------------------------------------------------------
def fit(
    network: BankNetwork, X: Array, Y: Array, weight: Array, owner: Array
) -> tuple[BankNetwork, Prediction]:
    """A network that has learned rows X: (n, d), Y: (n, m) of nodes (n,), with maps made from all
    of them; and what was predicted for rows that it was weighed by, NaN elsewhere.

    network: one that has seen nothing. Members are weighed on rows that chose no map of theirs.
    """
    Y, weight = limited(Y), np.minimum(weight, learning.HEAVIEST)
    # Evenly over every node's rows, so that each half of them has half of every node's.
    rank, count = np.zeros(len(X)), np.bincount(owner, minlength=network.K)
    for k, mine in _by_node(owner):
        rank[mine] = (np.arange(len(mine)) + 0.5) / count[k]
    order = np.argsort(rank, kind="stable")
    new = SentRows(X, Y, weight, owner, np.arange(len(X)), np.full(len(X), NEVER))[order]
    network = replace(network, steps=int(count.max(initial=0)))
    with ThreadPoolExecutor(1) as beside:
        own = beside.submit(_fit_alone, network, new)
        network, shared = _fit_shared(network, new)
        known, alone = own.result()
    network, out = replace(network, nodes=known), alone
    if shared is not None:
        network, out = _weigh(network, new, alone, shared)
    back = np.empty(len(X), np.int64)
    back[order] = np.arange(len(X))
    return network, Prediction(*(part[back] for part in vars(out).values()))


def _fit_alone(network: BankNetwork, rows: SentRows) -> tuple[tuple[NetworkNode, ...], Prediction]:
    known = list(network.nodes)
    out = _nothing_known(network.nodes[0].own, len(rows.X))
    for k, mine in _by_node(rows.node):
        own, few = known[k].own, network.K > MANY_NODES and len(mine) < FEW_ROWS
        weight = None if (rows.weight[mine] == 1.0).all() else rows.weight[mine]
        if few:
            own, found = learning.learn(own, rows.X[mine], rows.Y[mine], weight)
        else:
            own, found = learning.fit_rows(own.settings, rows.X[mine], rows.Y[mine], weight)
        known[k] = replace(known[k], own=own)
        _put(out, mine, found)
    return tuple(known), out


def _fit_shared(network: BankNetwork, rows: SentRows) -> tuple[BankNetwork, Prediction | None]:
    """The network's bank after all rows that nodes may send."""
    if network.bank is None:
        return network, None
    sharing, d = network.sharing, rows.X.shape[1]
    rows = replace(rows, step=np.arange(len(rows.X)))
    counted, sent, _ = share.send(replace(sharing, delay=0), rows, network.sent)
    there = np.flatnonzero(counted.due < NEVER)
    out = _nothing_known(network.bank, len(rows.X))
    bank, traffic = network.bank, 0.0
    if len(there):
        X = np.hstack([rows.X, rows.node[:, None]])[there]
        bank, found = learning.fit_rows(bank.settings, X, rows.Y[there], rows.weight[there])
        _put(out, there, found)
        sample = share.row_bytes(d, bank.m) * min(len(there), 4 * bank.settings.most)
        sums = len(np.unique(rows.node[there])) * share.sum_bytes(_widths(bank), bank.m)
        rest = len(there) * share.row_bytes(d, bank.m)
        traffic = float(rest if sharing.way == "rows" else sample + sums)
    left = counted[np.flatnonzero(counted.due == NEVER)]
    left = replace(left, step=np.full(len(left.due), network.steps - 1))
    units = None if bank.now is None else (bank.now.inputs, bank.now.targets)
    about = {"bank": bank, "sent": sent, "traffic": traffic, "rows": left, "units": units}
    return replace(network, **about), out  # type: ignore[arg-type]


def _weigh(
    network: BankNetwork, rows: SentRows, alone: Prediction, shared: Prediction
) -> tuple[BankNetwork, Prediction]:
    """Corrections and mixtures by the rows that both the own and the network's bank predicted."""
    known, out = list(network.nodes), _nothing_known(network.nodes[0].own, len(rows.X))
    fair = np.isfinite(alone.mean[:, 0]) & np.isfinite(shared.mean[:, 0])
    for k, mine in _by_node(rows.node):
        # These predictions are no beginner's: every row counts.
        known[k] = replace(ready(network, known[k]), errors=Errors(rows=BEGINNING))
        mine = mine[fair[mine]]
        if len(mine):
            given = (
                rows[mine],
                _part(alone, mine),
                _part(shared, mine),
                np.zeros(rows.Y[mine].shape),
            )
            node, found = _mix_one(known[k], *given)
            # The banks that erred so have learned all rows since.
            known[k] = nodes.without_recent(node)
            _put(out, mine, found)
    return replace(network, nodes=tuple(known)), out


def for_later_rows(network: BankNetwork) -> BankNetwork:
    """The network as it predicts rows of which the next is long past: what exports write down."""
    return replace(network, nodes=tuple(map(nodes.for_later_rows, network.nodes)))


# -- predicting ------------------------------------------------------------------------------------
def predict(network: BankNetwork, X: Array, node: Array) -> Prediction:
    """Of rows X: (n, d) at nodes by number (n,); -1 where it is none of the network's."""
    out = _empty(network.nodes[0].own, len(X))
    for k, mine in _by_node(node):
        nobody = k < 0 and network.K > 1
        found = _predict_anywhere(network, X[mine]) if nobody else _predict_at(network, X[mine], k)
        _put(out, mine, found)
    return out


def predict_mean(network: BankNetwork, X: Array, node: Array) -> Array:
    """The means (n, m) alone; where nobody shares, exactly as the own learner gives them."""
    if network.bank is not None:
        return predict(network, X, node).mean
    out = np.empty((len(X), network.m))
    for k, mine in _by_node(node):
        own = network.nodes[max(k, 0)].own
        everybody = k < 0 and network.K > 1
        found = _predict_anywhere(network, X[mine]).mean if everybody else None
        out[mine] = predicting.predict(own, X[mine]) if found is None else found
    return out


def predict_alone(network: BankNetwork, X: Array, k: int) -> Prediction:
    """What node k's own bank predicts for rows X: (n, d)."""
    return predicting.predict_with_variance(network.nodes[k].own, X)


def _predict_at(network: BankNetwork, X: Array, k: int) -> Prediction:
    k = max(k, 0)  # a network of one node is that node
    alone = predict_alone(network, X, k)
    if network.bank is None:
        return alone
    given = np.hstack([X, np.full((len(X), 1), k)])
    shared = predicting.predict_with_variance(network.bank, given)
    return nodes.predict(ready(network, network.nodes[k]), X, alone, shared)


def _predict_anywhere(network: BankNetwork, X: Array) -> Prediction:
    """By the network's bank, for a node that nobody has seen; where it knows nothing, by what all
    nodes predict, each counting as many rows as it has seen.
    """
    bank = network.bank
    if bank is not None and bank.now is not None:
        return predicting.predict_with_variance(bank, np.hstack([X, np.full((len(X), 1), -1.0)]))
    seen = network.seen
    if not seen.any():
        return predict_alone(network, X, 0)
    each = [predict_alone(network, X, k) for k in np.flatnonzero(seen).tolist()]
    weights = seen[seen > 0] / seen.sum()
    F, V = (np.stack([getattr(p, name) for p in each], axis=1) for name in ("mean", "variance"))
    return Prediction(*mixing.combine(weights, F, V), each[0].widths)


# -- helpers ---------------------------------------------------------------------------------------
def _by_node(node: Array) -> list[tuple[int, Array]]:
    """The rows of each node that has any, in order."""
    order = np.argsort(node, kind="stable")
    numbers, starts = np.unique(node[order], return_index=True)
    return (
        list(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)) if len(node) else []
    )


def _empty(bank: Bank, n: int) -> Prediction:
    m, L = bank.m, len(bank.tracker.levels)
    return Prediction(np.zeros((n, m)), np.ones((n, m)), np.zeros((n, m, L)))


def _nothing_known(bank: Bank, n: int) -> Prediction:
    empty = _empty(bank, n)
    return Prediction(*(np.full(part.shape, math.nan) for part in vars(empty).values()))


def _part(whole: Prediction, which: Array | slice) -> Prediction:
    return Prediction(*(part[which] for part in vars(whole).values()))


def _put(whole: Prediction, which: Array | slice, part: Prediction) -> None:
    for everywhere, some in zip(vars(whole).values(), vars(part).values(), strict=True):
        everywhere[which] = some
