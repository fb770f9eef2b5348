"""Sums per origin: entries that merge whatever happens, taking back, checks, faulty nodes."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import naive
from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem, Sending, run, squares
from dokl.base.arrays import Block
from dokl.base.errors import BadInput
from dokl.learning import alarms
from dokl.learning.squares import sums
from dokl.network.exchange.attacks import ATTACKS
from dokl.network.graphs import weights
from dokl.network.sums import checks, origins, shared
from dokl.network.sums.checks import Layout, RowLimits, Trial
from dokl.network.sums.origins import Entry
from dokl.simulation.diffusion import init
from dokl.simulation.engines import blas, reference
from dokl.simulation.methods import from_spec
from dokl.simulation.squares import memory_of
from dokl.simulation.streams import Stream
from wild_samples import wild_rows

d, D, K = 3, 12, 5
FEATURES = Features(Gaussian(2.0), d, D, "paired").draw(0)
LAYOUT = checks.layout_of(FEATURES)
NO_ROWS = sums.no_rows(D, 1)
RING = weights(GraphRecipe("ring", K).graph())


def rows(n, seed, flipped=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(n, 1))
    return FEATURES.transform(X), -Y if flipped else Y


def sums_of(n, seed, **more):
    return sums.add(sums.no_rows(D, 1), *rows(n, seed, **more))


def bits(account, without=()):
    return shared.pack(origins.total(account, without)).tobytes()


def history():
    """Everything that three origins ever told: growing, rolled back, leaving."""
    a = [Entry("a", 0, sums_of(n, 1)) for n in (5, 20, 40)]
    b = [Entry("b", 0, sums_of(n, 2)) for n in (7, 30)]
    b += [Entry("b", 1, sums_of(n, 2)) for n in (12, 18)]
    c = [Entry("c", 0, sums_of(50, 3)), Entry("c", 1, NO_ROWS)]
    return [*a, *b, *c], {"a": a[-1], "b": b[-1], "c": c[-1]}


def versions(account):
    return {name: entry.version for name, entry in account.items()}


def test_accounts_merge_in_any_order_however_often():
    told, newest = history()
    rng = np.random.default_rng(0)
    for _ in range(30):
        heard = [told[i] for i in rng.permutation(np.repeat(np.arange(len(told)), 2))]
        account = {}
        for i in range(0, len(heard), 3):
            account = origins.merge(account, heard[i : i + 3])
        assert versions(account) == versions(newest)
        assert bits(account) == bits(newest)


def test_a_network_that_loses_repeats_and_falls_apart_agrees_in_the_end():
    told, newest = history()
    rng, accounts = np.random.default_rng(1), [{} for _ in range(4)]
    for i, entry in enumerate(told):
        accounts[i % 2] = origins.merge(accounts[i % 2], [entry])
    accounts[0] = origins.merge(accounts[0], told)  # whoever tells never forgets what it told
    for turn in range(200):
        k, other = rng.choice(4, 2, replace=False)
        if rng.random() < 0.5 or (turn < 100 and (k < 2) != (other < 2)):
            continue  # lost, or the network is in two parts
        accounts[k] = origins.merge(accounts[k], accounts[other].values())
    assert {bits(account) for account in accounts} == {bits(newest)}


def test_leaving_unlearning_and_rolling_back_are_exact():
    a, b, c = (Entry(name, 0, sums_of(20, i)) for i, name in enumerate("abc"))
    never = origins.merge({}, [a, b])
    account = origins.merge({}, [a, b, c])
    gone = origins.merge(account, [Entry("c", 1, NO_ROWS)])
    assert bits(gone) == bits(never) == bits(account, without=["c"])
    assert bits(origins.merge(gone, [c])) == bits(never)  # an old message changes nothing
    Z, Y = rows(20, 1)
    fewer = sums.add(sums.no_rows(D, 1), Z[5:], Y[5:])
    unlearned = origins.merge(account, [Entry("b", 1, fewer)])
    assert bits(unlearned) == bits(origins.merge({}, [a, replace(b, sums=fewer), c]))
    back = origins.merge(unlearned, [Entry("b", 2, b.sums)])
    assert bits(back) == bits(account)
    with pytest.raises(BadInput, match="without entries"):
        origins.total({})


def test_an_origin_that_says_two_things_at_once_is_heard_alike_everywhere():
    one, two = Entry("a", 0, sums_of(20, 1)), Entry("a", 0, sums_of(20, 2))
    ends = [origins.merge({}, order) for order in itertools.permutations([one, two])]
    assert bits(ends[0]) == bits(ends[1])


def test_entries_travel_in_pieces():
    entry = Entry("station 7", 3, sums_of(25, 1))
    exact = origins.from_bytes(origins.to_bytes(entry, np.float64))
    assert exact.content == entry.content
    assert (exact.origin, exact.version) == ("station 7", (3, 25))
    data = origins.to_bytes(entry)
    near = origins.from_bytes(data)
    np.testing.assert_allclose(near.sums.zy, entry.sums.zy, rtol=1e-6)
    assert origins.to_bytes(near) == data  # whoever relays it passes the same bytes on
    parts = origins.pieces(data, 100)
    assert max(map(len, parts)) <= 100
    assert b"".join(part[origins.PIECE.size :] for part in parts) == data
    other = origins.pieces(origins.to_bytes(replace(entry, incarnation=4)), 100)
    assert other[0][:16] != parts[0][:16] == parts[1][:16]  # of which whole it is
    for bad, wrong in (
        (b"dokl", "not an entry"),
        (data[:-4], "another length"),
        (data[:8] + b"q" + data[9:], "head"),
        (data[:-4] + np.float32(math.nan).tobytes(), "not finite"),
        (data[:-4] + bytes([1, 0, 0x80, 0x7F]), "not finite"),  # it signals; without a warning
    ):
        with pytest.raises(BadInput, match=wrong):
            origins.from_bytes(bad)
    with pytest.raises(BadInput, match="float32 or float64"):
        origins.to_bytes(entry, np.float16)
    with pytest.raises(BadInput, match="cannot be cut"):
        origins.pieces(data, 20)


# --- checks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_honest_sums_pass(dtype):
    old = None
    for n in (1, 3, 200, 5000):
        Z, Y = rows(n, 1)
        w = np.random.default_rng(0).uniform(0.1, 1.0, n)
        entry = Entry("a", 0, sums.add(sums.no_rows(D, 1), Z, Y, w))
        entry = origins.from_bytes(origins.to_bytes(entry, dtype))
        limits = RowLimits(1.0, 5.0, 100.0)
        assert checks.growth_faults(old, entry, LAYOUT, limits, seconds=50.0) == []
    for variant in ("cos", "orthogonal"):
        features = Features(Gaussian(2.0), d, D, variant).draw(1)
        Z = features.transform(np.random.default_rng(0).normal(size=(50, d)))
        found = sums.add(sums.no_rows(D, 1), Z, np.ones((50, 1)))
        assert checks.faults(found, checks.layout_of(features)) == []


def faults():
    true = sums_of(200, 1)
    crooked = true.zz.copy()
    crooked[1, 0] += 300.0
    shifted = true.zz.copy()
    shifted[0, 0] += 5.0
    yield "inflated count", replace(true, weight=2 * true.weight, rows=400), "add up"
    yield "more weight than rows", replace(true, weight=500.0), "more than 1 each"
    yield "rows of no weight", sums.times(replace(true, rows=5000), 1e-9), "less than rows can"
    yield "sign flip", true - true - true, "rows of weight"
    yield "crooked", replace(true, zz=crooked), "negative direction"
    yield "shifted", replace(true, zz=shifted), "cosine and sine of frequency 0"
    yield "too much", replace(true, zy=10 * true.zy), "explain more"
    yield "wild targets", replace(true, yy=true.yy + 1e6), "the most"
    yield "not a number", replace(true, zy=true.zy * math.nan), "not finite"


@pytest.mark.parametrize(
    ("sums_", "wrong"), [attack[1:] for attack in faults()], ids=[x[0] for x in faults()]
)
def test_lies_are_found(sums_, wrong):
    assert any(wrong in why for why in checks.faults(sums_, LAYOUT, RowLimits(1.0, 5.0)))


def test_new_rows_of_no_weight_are_found():
    before = Entry("a", 0, sums_of(200, 1))
    after = Entry("a", 0, replace(before.sums, rows=5200))
    found = checks.growth_faults(before, after, LAYOUT, RowLimits(1.0, 5.0))
    assert found == ["since the entry before: 5000 rows of next to no weight"]


def test_a_constant_feature_counts_and_growth_is_bounded():
    Z, Y = rows(30, 1)
    Z = np.column_stack([Z, np.full(30, 2.0)])
    found = sums.add(sums.no_rows(D + 1, 1), Z, Y)
    layout = Layout(LAYOUT.pairs, LAYOUT.square, {D: 2.0}, 5.0)
    assert checks.faults(found, layout) == []
    assert "always 2" in checks.faults(replace(found, zz=found.zz + np.eye(D + 1)), layout)[-2]
    before, after = Entry("a", 0, sums_of(20, 1)), Entry("a", 0, sums_of(80, 1))
    assert checks.growth_faults(before, after, LAYOUT) == []
    fast = checks.growth_faults(before, after, LAYOUT, RowLimits(1.0, 9.0, 2.0), seconds=10.0)
    assert fast == ["60 rows within 10 s, more than 2 a second"]
    slow = RowLimits(1.0, 9.0, 7.0)  # all 80 rows would be too many, the 60 new ones are not
    restarted = Entry("a", 1, after.sums)
    assert checks.growth_faults(before, restarted, LAYOUT, slow, seconds=10.0) == []
    assert checks.growth_faults(before, restarted, LAYOUT, slow, seconds=8.0) != []
    assert checks.growth_faults(None, restarted, LAYOUT, slow, seconds=10.0) != []
    other = Entry("a", 0, replace(sums_of(80, 9), rows=10, weight=10.0))
    assert any("taken away" in why for why in checks.growth_faults(after, other, LAYOUT))
    assert checks.growth_faults(after, Entry("a", 1, sums_of(10, 1)), LAYOUT) == []


@pytest.mark.parametrize("faulty", [0, 1, 2])
def test_origins_whose_rows_hurt_are_left_out_and_honest_ones_stay(faulty):
    trial, own = Trial(), sums.no_rows(D, 1)
    for turn in range(35):
        account = {"me": Entry("me", 0, own)}
        for i in range(4):
            told = sums_of(40 * (turn + 1), 10 + i, flipped=i < faulty)
            account[f"n{i}"] = Entry(f"n{i}", 0, told)
        fresh = sums_of(10, 100 + turn)
        trial = checks.judge(trial, account, "me", fresh, 0.05, alarms.threshold(7200))
        own += fresh
    assert trial.out == {f"n{i}" for i in range(faulty)}


def test_targets_of_another_size_are_left_out_at_once():
    own, few = sums_of(40, 1), sums_of(1, 2)
    large = replace(own, zy=-10 * own.zy, yy=100 * own.yy)
    assert checks.loud(large, own)
    assert not checks.loud(large, few)
    assert not checks.loud(own, large)
    assert not checks.loud(sums_of(40, 3), own)


# --- simulated ----------------------------------------------------------------------------------


def samples(n=30, m=1, seed=0):
    rng = np.random.default_rng(seed)
    X, Y, index = wild_rows(rng, (n, K), d, m)
    return Block(X, Y, rng.uniform(0.3, 2.0, n * K), index)


def ran(engine, method, exchange, block, m=1):
    problem = Problem(FEATURES, method)
    plan, state, told = engine.plan(problem, exchange), init(problem, exchange, K, m), []
    for start, stop in ((0, 13), (13, block.n)):
        state, f = engine.advance(plan, state, block.steps(start, stop))
        told.append(f)
    return state, np.concatenate(told)


@pytest.mark.parametrize("engine", [reference, blas], ids=["reference", "blas"])
@pytest.mark.parametrize(
    ("settings", "order", "every", "m"),
    [({}, "atc", 1, 1), ({"memory": 40.0}, "atc", 3, 2), ({"fewest": 4}, "cta", 2, 1)],
    ids=["plain", "memory", "few rows wait"],
)
def test_simulated_accounts_are_what_loops_by_hand_compute(engine, settings, order, every, m):
    method, block = squares(0.1, share="origins", **settings), samples(m=m)
    at = np.maximum(block.index, 0)
    lists = FEATURES.transform(block.X)[at], block.Y[at]
    w = np.where(block.index >= 0, block.weight[at], 0.0)
    numbers = method.numbers.rho, method.numbers.lam, method.numbers.bound
    f, theta, P = naive.origin_squares(
        *(each.tolist() for each in (*lists, w, RING.toarray())), order, every, *numbers,
        method.fewest,
    )  # fmt: skip
    state, told = ran(engine, method, Exchange(RING, order, every), block, m)
    np.testing.assert_allclose(told, f, atol=1e-9, equal_nan=True)
    np.testing.assert_allclose(state.theta, theta, atol=1e-9)
    for k in range(K):
        np.testing.assert_allclose(memory_of(state, k).covariance(), P[k], atol=1e-8)


def test_a_network_of_accounts_knows_all_rows_a_few_exchanges_later():
    problem = Problem(FEATURES, squares(0.1, bound=math.inf, share="origins"))
    block = samples(40)
    quiet = Block(block.X, block.Y, block.weight, np.full((K, K), -1))
    exchange = Exchange(RING, sending=Sending("float32"))
    plan, state = blas.plan(problem, exchange), init(problem, exchange, K)
    state, _ = blas.advance(plan, state, block)
    state, _ = blas.advance(plan, state, quiet)
    sent = state.sent
    assert blas.advance(plan, state, quiet)[0].sent == sent > 0  # there is no more to tell
    used = block.index[block.index >= 0]
    whole = shared.of_rows(FEATURES.transform(block.X[used]), block.Y[used], block.weight[used])
    one = sums.solve(shared.unpack(whole, D, 1), 0.1)
    for k in range(K):
        np.testing.assert_allclose(state.theta[k], one.theta, atol=1e-5)


def test_what_cannot_be_simulated_is_refused():
    problem = Problem(FEATURES, squares(share="origins"))
    with pytest.raises(BadInput, match="not mixed and go out whole"):
        init(problem, Exchange(RING, sending=Sending(parts=2)), K)
    with pytest.raises(BadInput, match=r"take .* GB at every node"):
        origins.check_size(100_000, 300, 1)
    from dokl.simulation.streams import Example2

    wide = Problem(Features(Gaussian(5.0), 5, 24), squares(share="origins"))
    trace = run(wide, Exchange(RING, every=2), Example2(K=K, n=20), record=("mse", "bytes"))
    assert np.diff(trace["bytes"])[::2].min() > 0
    assert trace["bytes"][-1] > 0


def same_function(n=100):
    """Five nodes that see the same function, in more directions than a node alone has rows for."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n * K, d))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(n * K, 1))
    return Stream(X.reshape(n, K, d), Y.reshape(n, K, 1))


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_whatever_a_liar_says_honest_nodes_are_hardly_worse_than_without_it(name):
    def tail(method, exchange):
        problem = Problem(Features(Gaussian(1.0), d, 60, "paired"), method)
        trace = run(problem, exchange, same_function(), record=("node_mse",), seed=0)
        return trace.curves["node_mse"][0, -50:].mean(axis=0)  # NaN for faulty nodes

    robust = squares(0.05, share="origins", robust=True)
    attacked = Exchange(RING, every=5, attack=ATTACKS[name](), faulty=(2,))
    honest = np.arange(K) != 2
    alone, found = tail(squares(0.05), Exchange()), tail(robust, attacked)
    peace = tail(robust, Exchange(RING, every=5))
    assert found[honest].mean() < 1.2 * peace[honest].mean()  # a fifth of the rows is missing
    assert (found[honest] < 1.1 * alone[honest]).all()


def test_who_lies_among_averaged_copies_is_refused_and_wary_needs_origins():
    attacked = Exchange(RING, attack=ATTACKS["sign_flip"](), faulty=(2,))
    with pytest.raises(BadInput, match=r"no fault .* can be detected"):
        init(Problem(FEATURES, squares(share="sums")), attacked, K)
    with pytest.raises(BadInput, match="robust needs share='origins'"):
        squares(robust=True)
    robust = squares(share="origins", robust=True)
    assert from_spec(robust.spec()) == robust
    earlier = {name: value for name, value in robust.spec().items() if name != "robust"}
    assert from_spec(earlier | {"wary": True}) == robust
