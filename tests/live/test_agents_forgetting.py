"""Shared experts that forget, live: what they know follows from how the total grows."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from test_agents_sums import SumsLink, network_of

from dokl.live.sums.forgetting import Fading, remainders_now, totals
from dokl.network.sums import shared
from dokl.network.sums.origins import Entry
from fake_link import rows

D = 6
FADING = (Fading(10.0, D), Fading(10.0, 4))


def sums_of(Z, Y):
    return shared.unpack(shared.of_rows(Z, Y, None), Z.shape[1], Y.shape[1])


def some_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.normal(size=(n, 1))


def entry_of(Z, Y, name="a", life=0):
    return Entry(name, life, sums_of(Z, Y))


def lower(sums):
    return np.tril(sums.zz)


def test_what_is_left_are_rows_of_which_older_ones_count_less():
    """Two origins, told three times: every row by how many came after its own part."""
    parts = {"a": [5, 3, 4], "b": [5, 0, 6]}
    rows_of = {name: some_rows(sum(n), seed) for seed, (name, n) in enumerate(parts.items())}
    kept, told = {}, dict.fromkeys(parts, 0)
    for turn in range(3):
        told = {name: told[name] + parts[name][turn] for name in parts}
        account = {n: entry_of(*(a[: told[n]] for a in rows_of[n]), n) for n in parts}
        kept = remainders_now(kept, account, (), FADING)
    came = [sum(parts[name][turn] for name in parts) for turn in range(3)]
    for number, width in enumerate((D, 4)):
        expected = np.zeros((width, width))
        for name, counts in parts.items():
            age = np.repeat([came[1] + came[2], came[2], 0], counts)
            Z = rows_of[name][0][:, :width]
            expected += Z.T @ (Z * (0.9**age)[:, None])
        found = totals(kept, parts)[number]
        np.testing.assert_allclose(lower(found), np.tril(expected), atol=1e-12)
        assert found.zy.shape == (1, width)


def test_an_origin_that_is_new_here_counts_by_as_many_rows_as_are_remembered():
    Z, Y = some_rows(40)
    (kept,) = remainders_now({}, {"a": entry_of(Z, Y)}, (), FADING[:1]).values()
    assert kept.left[0].weight == pytest.approx(10.0)
    few = remainders_now({}, {"a": entry_of(Z[:4], Y[:4])}, (), FADING[:1])["a"]
    assert few.left[0].weight == 4.0


@pytest.mark.parametrize(("rows_now", "life"), [(30, 0), (30, 1), (45, 1)])
def test_rows_taken_back_leave_no_hole(rows_now, life):
    """Others' come meanwhile, and an origin that lost its last rows may have learned more."""
    Z, Y = some_rows(40)
    other, others = some_rows(80, 1)
    account = {"a": entry_of(Z, Y), "b": entry_of(other[:40], others[:40], "b")}
    kept = remainders_now({}, account, (), FADING)
    changed = some_rows(rows_now, 7)
    account = {"a": entry_of(*changed, life=life), "b": entry_of(other, others, "b")}
    kept = remainders_now(kept, account, (), FADING)
    for found in totals(kept, account):
        full = lower(found) + lower(found).T
        np.fill_diagonal(full, np.diag(found.zz))
        assert np.linalg.eigvalsh(full).min() > -1e-12
        assert 0.0 < found.weight < 90.0


def test_who_is_left_out_makes_nobody_forget_and_comes_back_as_it_was():
    Z, Y = some_rows(20)
    account = {"a": entry_of(Z, Y), "b": entry_of(Z, -Y, "b")}
    kept = remainders_now({}, account, {"b"}, FADING)
    account["b"] = entry_of(*some_rows(5000, 3), "b")
    after = remainders_now(kept, account, {"b"}, FADING)
    np.testing.assert_array_equal(after["a"].left[0].zz, kept["a"].left[0].zz)
    assert totals(after, {"a"})[0].weight == kept["a"].left[0].weight


@pytest.fixture
def one():
    return network_of(nx.path_graph(2)).learner()


def test_what_changed_long_ago_is_known_by_all_rows_and_forgotten_by_others(one):
    """The network's function changes its sign: the expert of 1,000 rows follows."""
    rng, state, kept, total = np.random.default_rng(0), one.start(), {}, None
    for part in range(16):
        X, Y = rows(rng, 500)
        came = sums_of(one.made.transform(X), Y if part < 8 else -Y)
        total = came if total is None else total + came
        kept = remainders_now(kept, {"a": Entry("a", 0, total)}, (), one.fading)
        state = one.knowing(state, total, totals(kept, "a"))
    X, Y = rows(rng, 200)
    Z = one.made.transform(X)

    thetas = [memory.theta for memory in state.node.memories]
    errors = [np.mean((Z[:, : theta.shape[1]] @ theta.T + Y) ** 2) for theta in thetas]
    assert errors[2] < 0.05 * errors[0]
    assert errors[1] < errors[0]


@pytest.mark.slow
def test_nodes_forget_what_travels():
    """The sums of all nodes, which turn round meanwhile; nobody's own rows are many."""
    link, source = SumsLink(nx.path_graph(3)).start(), np.random.default_rng(1)
    for turn in range(30):
        for name in link.nodes:
            X, Y = rows(source, 60)
            link._done(name, link.nodes[name].samples(X, Y if turn < 15 else -Y, link.now))
        link.run(2)
    X, Y = rows(source, 200)
    Z = link.learner.made.transform(X)
    for each in link.nodes.values():
        errors = [
            np.mean((Z[:, : theta.shape[1]] @ theta.T + Y) ** 2)
            for theta in (memory.theta for memory in each.state.node.memories)
        ]
        assert errors[2] < 0.5 * errors[0]
        assert errors[1] < errors[0]


def test_rows_of_no_weight_make_nobody_forget():
    known = {name: entry_of(*some_rows(8, seed), name) for seed, name in enumerate("ab")}
    kept = remainders_now({}, known, (), FADING)
    claimed = replace(known["b"].sums, rows=5008)
    now = remainders_now(kept, {**known, "b": Entry("b", 0, claimed)}, (), FADING)
    for name in "ab":
        assert np.array_equal(lower(now[name].left[0]), lower(kept[name].left[0]))
