import functools
import itertools
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import random_array

from dokl import losses, schedules
from dokl.base.errors import BadInput, Diverged, UnknownName
from dokl.base.progress import Bar
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.learning.losses import Loss
from dokl.learning.metrics import decibels
from dokl.network.exchange import Exchange, Sending
from dokl.network.graphs import GraphRecipe, metropolis, ring, star
from dokl.paper.problems import example_problem
from dokl.simulation import driver, recording
from dokl.simulation.diffusion import Problem, Trace, combines_now, init
from dokl.simulation.engines import (
    ENGINES,
    check_engine,
    choice,
    choose,
    numba_engine,
    reference,
    run,
)
from dokl.simulation.engines.choice import EngineNotice
from dokl.simulation.methods import gradient
from dokl.simulation.streams import Example1, Example2, Example3, Example4, Missing, Shards, Stream

FEATURES = Features(Gaussian(3.0), d=5, D=16)
KLMS = Problem(FEATURES, gradient(losses.squared(), schedules.constant(0.5)))
DATA = Example2(K=4, n=60)
NETWORK = GraphRecipe("random", 4, params={"p": 0.5})
FIXED = {
    "features": FEATURES.draw(1),
    "weights": NETWORK.draw(1),
    "stream": DATA.draw(1),
}


def learn(features=FEATURES, weights=NETWORK, stream=DATA, problem=KLMS, order="atc", **settings):
    exchange = Exchange(weights, order)
    settings = {"dtype": np.float64} | settings
    return run(replace(problem, features=features), exchange, stream, **settings)


# --- recipes, seeds, workers ------------------------------------------------------------


def test_plain_arrays_stay_fixed_in_every_run():
    trace = learn(**FIXED, runs=3)
    assert trace.curves["mse"].shape == (3, 60)
    np.testing.assert_array_equal(trace.curves["mse"][1:], trace.curves["mse"][:1].repeat(2, 0))
    np.testing.assert_allclose(trace.error("mse"), 0, atol=1e-13)


@pytest.mark.parametrize("recipe", ["features", "weights", "stream"])
def test_each_recipe_is_redrawn_in_every_run(recipe):
    drawn = {"features": FEATURES, "weights": NETWORK, "stream": DATA}
    trace = learn(**FIXED | {recipe: drawn[recipe]}, runs=4)
    distinct = np.unique(trace.curves["mse"], axis=0)
    assert len(distinct) > 1  # graphs of four nodes may repeat
    if recipe != "weights":
        assert len(distinct) == 4


def test_a_result_names_its_seed_and_the_seed_gives_the_result():
    trace = learn(runs=3, seed=11)
    again = learn(runs=3, seed=trace.seed)
    other = learn(runs=3, seed=12)
    np.testing.assert_array_equal(trace.curves["mse"], again.curves["mse"])
    assert not np.array_equal(trace.curves["mse"], other.curves["mse"])


def test_the_number_of_workers_does_not_matter():
    one, *others = (learn(runs=5, workers=w, record=("mse", "state")) for w in (1, 2, 8))
    for other in others:
        np.testing.assert_array_equal(one.curves["mse"], other.curves["mse"])
        for mine, theirs in zip(one.states, other.states, strict=True):
            np.testing.assert_array_equal(mine.theta, theirs.theta)


def test_a_single_run_of_a_large_network_is_shared_among_threads(monkeypatch):
    alone = learn(workers=1)
    monkeypatch.setattr(numba_engine, "LARGE", 0)
    np.testing.assert_array_equal(learn(workers=2)["mse"], alone["mse"])


def test_more_runs_begin_with_the_same_ones():
    two, four = learn(runs=2), learn(runs=4)
    np.testing.assert_array_equal(two.curves["mse"], four.curves["mse"][:2])


def test_together_and_alone_see_the_same_samples_and_features():
    together, alone = learn(runs=2, seed=3), learn(weights=None, runs=2, seed=3)
    np.testing.assert_array_equal(together["mse"][0], alone["mse"][0])  # everyone at theta = 0
    assert not np.array_equal(together["mse"][1:], alone["mse"][1:])


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_reference_and_numba_agree(order):
    record = ("mse", "node_mse", "mistakes", "loss", "predictions", "theta", "bytes", "state")
    settings = {"order": order, "runs": 2, "record": record, "snapshot": 20}
    settings |= {"stream": Missing(DATA, 0.3)}
    ours, true = (learn(engine=engine, **settings) for engine in ("numba", "reference"))
    assert (ours.engine, true.engine) == ("numba", "reference")
    for name in ours.curves:
        np.testing.assert_allclose(ours.curves[name], true.curves[name], atol=1e-9, err_msg=name)


def test_engines_have_their_own_precision_unless_told():
    assert learn(dtype=None).dtype == "float32"
    assert learn(dtype=None, engine="reference").dtype == "float64"
    assert learn(engine="reference", dtype=np.float32).dtype == "float32"


def test_an_own_loss_that_does_not_compile_is_run_by_the_reference():
    slope = functools.partial(lambda size, y, f: size * np.sign(f - y), 1.0)
    odd = Loss("odd", lambda y, f: abs(f - y), slope)
    problem = replace(KLMS, method=replace(KLMS.method, loss=odd))
    with pytest.warns(EngineNotice):
        trace = learn(problem=problem)
    assert trace.engine == "reference"
    plain = learn(problem=replace(KLMS, method=replace(KLMS.method, loss=losses.absolute())))
    np.testing.assert_allclose(trace["mse"], plain["mse"], atol=1e-9)
    with pytest.raises(BadInput, match="cannot run this problem"):
        learn(problem=problem, engine="numba")


def test_check_engine_finds_an_engine_that_is_off(monkeypatch):
    check_engine("numba")
    crooked = types.ModuleType("crooked")
    crooked.plan = reference.plan

    def advance(plan, state, block, workers=None):
        state, f = reference.advance(plan, state, block)
        state.theta *= 1 + 1e-6
        return state, f

    crooked.advance = advance
    monkeypatch.setitem(sys.modules, "crooked", crooked)
    monkeypatch.setitem(ENGINES, "crooked", "crooked")
    monkeypatch.setitem(choice.DEFAULT_DTYPE, "crooked", np.float64)
    with pytest.raises(BadInput, match="engine 'crooked': theta differ from the reference by"):
        check_engine("crooked")


# --- what is recorded -------------------------------------------------------------------


def test_shapes_of_everything_recordable():
    names = [name for name in recording.RECORDABLE if name != "state"]
    stream = Stream(np.ones((60, 4, 5)), np.ones((60, 4, 3)))
    trace = learn(stream=stream, runs=2, record=(*names, "state"), snapshot=25)
    shapes = {name: curve.shape for name, curve in trace.curves.items()}
    assert shapes == {
        "mse": (2, 60),
        "node_mse": (2, 60, 4),
        "mistakes": (2, 60),
        "loss": (2, 60),
        "predictions": (2, 60, 4, 3),
        "disagreement": (2, 2),
        "theta": (2, 2, 4, 3, 16),
        "delivered": (2, 2, 4, 3, 16),
        "bytes": (2, 60),
    }
    np.testing.assert_array_equal(trace.at["mse"], np.arange(1, 61))
    np.testing.assert_array_equal(trace.at["theta"], [25, 50])
    assert len(trace.states) == 2
    assert (trace.runs, trace.steps) == (2, 60)
    assert trace.seconds > 0


def test_states_are_kept_when_asked_for_or_when_there_is_but_one():
    assert len(learn().states) == 1
    assert learn(runs=2).states == []


def test_a_single_name_may_be_recorded():
    assert set(learn(record="loss").curves) == {"loss"}


def test_recorded_errors_are_those_of_the_recorded_predictions():
    trace = learn(**FIXED, record=("mse", "node_mse", "loss", "predictions"))
    error = FIXED["stream"].y - trace["predictions"][..., 0]
    np.testing.assert_allclose(trace["node_mse"], error**2, atol=1e-12)
    np.testing.assert_allclose(trace["mse"], (error**2).mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(trace["loss"], (error**2).mean(axis=1) / 2, atol=1e-12)


def test_mistakes_are_of_the_sign_before_learning():
    stream = FIXED["stream"]
    labels = Stream(stream.X, np.sign(stream.y))
    trace = learn(**FIXED | {"stream": labels}, record=("mistakes", "predictions"))
    wrong = np.where(trace["predictions"][..., 0] >= 0, 1, -1) != labels.y
    np.testing.assert_allclose(trace["mistakes"], wrong.mean(axis=1))


def test_snapshots_are_the_states_at_that_time():
    trace = learn(**FIXED, record=("theta", "delivered", "disagreement"), snapshot=20)
    for i, n in enumerate((20, 40, 60)):
        stream = FIXED["stream"].rows(0, n)
        state = learn(**FIXED | {"stream": stream}).states[0]
        np.testing.assert_array_equal(trace["theta"][i], state.theta)
        apart = state.theta - state.theta.mean(axis=0)
        assert trace["disagreement"][i] == pytest.approx(np.sqrt((apart**2).sum() / 4))


def test_delivered_is_the_average_when_there_is_one():
    exchange = Exchange(NETWORK, average="uniform")
    settings = {"record": ("theta", "delivered"), "dtype": np.float64}
    trace = run(KLMS, exchange, DATA, snapshot=1, **settings)
    np.testing.assert_allclose(trace["delivered"][-1], trace["theta"].mean(axis=0), atol=1e-12)


def test_snapshots_do_not_disturb_the_learning():
    plain = learn(runs=2)
    for snapshot in (1, 7, 60):
        trace = learn(runs=2, record=("mse", "theta"), snapshot=snapshot)
        np.testing.assert_array_equal(trace.curves["mse"], plain.curves["mse"])


def test_small_blocks_do_not_disturb_the_learning(monkeypatch):
    plain = learn(runs=2)
    monkeypatch.setattr(driver, "BLOCK", 7 * 4)
    np.testing.assert_array_equal(learn(runs=2).curves["mse"], plain.curves["mse"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("order", "every", "combined"),
    [
        ("cta", 1, [1, 2, 3, 4, 5, 6]),
        ("cta", 3, [1, 1, 1, 2, 2, 2]),
        ("atc", 3, [0, 0, 1, 1, 1, 2]),
    ],
)
def test_bytes_by_hand(dtype, order, every, combined):
    exchange = Exchange(metropolis(ring(4)), order, every, intercept=1.0)
    stream = Stream(np.ones((6, 4, 5)), np.zeros((6, 4, 2)))
    trace = run(KLMS, exchange, stream, record=("bytes",), dtype=dtype)
    one_vector = 2 * 16 * np.dtype(dtype).itemsize  # two outputs of D = 16; no intercept
    links = 8  # four in a ring, both ways
    np.testing.assert_array_equal(trace["bytes"], links * one_vector * np.array(combined))


def test_bytes_of_a_changing_network_and_of_nobody():
    sequence = Exchange([metropolis(ring(4)), metropolis(star(4))])
    stream = DATA.draw(0).rows(0, 4)
    trace = run(KLMS, sequence, stream, record=("bytes",), dtype=np.float64)
    np.testing.assert_array_equal(trace["bytes"] / (16 * 8), [8, 8 + 6, 16 + 6, 16 + 12])
    alone = run(KLMS, Exchange(np.eye(4)), stream, record=("bytes",))
    np.testing.assert_array_equal(alone["bytes"], 0)


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_bytes_are_those_that_the_rules_let_through(order):
    """Halves of a vector in float16, in turn, and only from nodes that have changed."""
    stream, weights = DATA.draw(0).rows(0, 20), metropolis(ring(4))
    for rule, each in ((Sending("float16", parts=2), [8 * 8 * 2] * 7), (Sending(least=0.3), None)):
        exchange = Exchange(weights, order, every=3, sending=rule)
        trace = run(KLMS, exchange, stream, record=("mse", "bytes"), engine="reference")
        sent, state = np.diff(trace["bytes"], prepend=0), trace.states[0]
        now = [combines_now(exchange, exchange.graphs, t) for t in range(20)]
        assert not sent[np.logical_not(now)].any()
        if each is not None:
            np.testing.assert_array_equal(sent[now], each[: sum(now)])
        else:  # in whole messages, and not always all of them
            assert not (sent % (16 * 8 * 2)).any()
            assert len(set(sent[now])) > 1
        assert trace["bytes"][-1] == state.sent > 0
        plain = run(KLMS, exchange, stream, record="mse", engine="reference")
        np.testing.assert_array_equal(trace["mse"], plain["mse"])


class Lossless:
    name = "odd"

    def __getattr__(self, name):
        if name == "loss":
            raise AttributeError(name)
        return getattr(KLMS.method, name)


def test_a_method_without_a_loss_says_so():
    problem, stream = replace(KLMS, method=Lossless()), DATA.draw(0).rows(0, 3)
    with pytest.raises(BadInput, match="method 'odd' has no loss to record: record 'mse'"):
        run(problem, Exchange(), stream, record="loss", engine="reference")


class Counting(driver.Executor):
    """Runs nothing, and says what it was asked to run."""

    engine, dtype, marks, nodes = "none", float, (4, None), 2

    def __init__(self, blocks, done=0):
        self.blocks, self.done, self.state, self.calls = blocks, done, None, []
        self.recorder = recording.Recorder((), {}, {})

    def take(self, block):
        return block, 6

    def advance(self, start, stop):
        self.calls.append((start, stop))

    def after(self, step):
        self.calls.append(step)


@pytest.mark.parametrize(
    ("done", "calls"),
    [
        (0, [(0, 4), 4, (4, 5), 5, (5, 6), 6, (6, 7), 7, (7, 8), 8, (8, 10), 10, (10, 11), 11]),
        (6, [(6, 7), 7, (7, 8), 8, (8, 10), 10, (10, 11), 11]),
        (9, [(9, 10), 10, (10, 11), 11]),
        (11, []),
    ],
)
def test_pieces_end_where_something_is_due_and_what_was_done_is_skipped(done, calls):
    executor, bar = Counting([7, 4], done), Bar()
    (result,) = driver.drive(executor, recording.check_asked((), 5, 1, 0), bar)
    assert executor.calls == calls
    assert result.points == [step for step in (5, 10) if step > done]
    assert (result.steps, bar.done) == (11, 22)


def test_disagreement_falls_with_the_step_on_a_connected_graph_only():
    problem = Problem(
        Features(Gaussian(5.0), 5, 100), gradient(losses.squared(), schedules.sqrt(1.0))
    )
    fall = {}
    for weights in (GraphRecipe("ring", 8), None):
        settings = {"runs": 4, "record": "disagreement", "snapshot": 400}
        trace = run(problem, Exchange(weights, "cta"), Example2(K=8, n=6400), **settings)
        steps, apart = trace.at["disagreement"], trace["disagreement"]
        fall[weights is None] = np.polyfit(np.log(steps), np.log(apart), 1)[0]
    assert -0.7 < fall[False] < -0.4  # as mu / sqrt(n) does
    assert fall[True] > -0.25


# --- kinds of streams -------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_streams_in_turn_are_one_stream(engine):
    whole = FIXED["stream"]
    settings = {"engine": engine, "record": ("mse", "theta"), "snapshot": 20}
    expected = learn(**FIXED, **settings)
    for cuts in ([0, 60], [0, 20, 40, 60], [0, 1, 33, 60]):
        parts = [whole.rows(a, b) for a, b in itertools.pairwise(cuts)]
        for stream in (parts, iter(parts)):
            trace = learn(**FIXED | {"stream": stream}, **settings)
            np.testing.assert_array_equal(trace["mse"], expected["mse"])
            np.testing.assert_array_equal(trace["theta"], expected["theta"])
            assert trace.steps == 60


def test_an_iterator_of_streams_cannot_serve_two_runs():
    stream = FIXED["stream"]
    with pytest.raises(BadInput, match="read only once: pass a list, or runs=1"):
        learn(stream=(part for part in [stream, stream]), runs=2)
    assert learn(stream=[stream, stream], runs=2).steps == 120


@pytest.mark.parametrize("sparse", [False, True])
def test_a_data_set_dealt_over_nodes(sparse):
    rng = np.random.default_rng(0)
    X = random_array((103, 5), density=0.5, rng=rng, format="csr") if sparse else None
    X = rng.standard_normal((103, 5)) if X is None else X
    y = rng.standard_normal(103)
    shards = Shards(X, y, K=4, passes=3)
    settings = {"weights": FIXED["weights"], "features": FIXED["features"]}
    trace = learn(stream=shards, runs=2, record=("mse", "state"), **settings)
    assert trace.steps == 3 * 25
    assert not np.array_equal(trace.curves["mse"][0], trace.curves["mse"][1])
    assert [list(state.count) for state in trace.states] == [[75] * 4] * 2
    fixed = shards.draw(7)
    slow = learn(stream=fixed, engine="reference", **settings)
    np.testing.assert_allclose(learn(stream=fixed, **settings)["mse"], slow["mse"], atol=1e-9)


def test_missing_samples_are_left_out_of_every_mean():
    stream = Missing(Example2(K=1, n=200), 0.5)
    trace = learn(stream=stream, weights=None, runs=3, record=("mse", "loss", "mistakes"))
    assert np.isnan(trace.curves["mse"]).any()
    for name in ("mse", "loss", "mistakes"):
        assert np.isfinite(trace.tail(name)).all()
    some = ~np.isnan(trace.curves["mse"]).all(axis=0)
    assert np.isfinite(trace["mse"][some]).all()
    assert np.isfinite(trace.error("mse")[some]).all()


# --- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"record": ("mes",)}, "unknown quantity to record 'mes': did you mean 'mse'"),
        ({"record": ("theta",)}, "recording 'theta' needs snapshot="),
        ({"record": ("theta",), "snapshot": 0}, "snapshot must be a whole number of steps"),
        ({"record": ("theta",), "snapshot": 61}, "snapshot=61 is beyond the stream's 60 steps"),
        ({"runs": 0}, "runs must be a whole number, at least 1, got 0"),
        ({"runs": 1.5}, "runs must be a whole number"),
        ({"seed": -1}, "seed must be an integer"),
        ({"engine": "nunba"}, "unknown engine 'nunba': did you mean 'numba'"),
        ({"stream": 3}, "a stream is a Stream, a recipe of one, or Streams in turn; got 3"),
        ({"stream": []}, "the stream is empty"),
        ({"stream": Example2(K=5, n=9)}, "weights are for 4 nodes, the stream has 5"),
        ({"stream": Example2(K=4, n=9, d=2)}, "samples have 2 inputs, the features expect 5"),
        ({"stream": [DATA.draw(0), Example2(K=3, n=9).draw(0)]}, "has 3 nodes and 1 outputs"),
    ],
)
def test_what_cannot_be_run(settings, complaint):
    with pytest.raises(BadInput, match=complaint):
        learn(**settings)


def test_divergence_names_the_step_of_the_run_not_of_the_block(monkeypatch):
    wild = replace(KLMS, method=gradient(losses.squared(), schedules.constant(50.0)))
    steps = []
    for size in (1 << 19, 3 * 4):
        monkeypatch.setattr(driver, "BLOCK", size)
        with pytest.raises(Diverged, match="at step") as error:
            learn(problem=wild, stream=Example2(K=4, n=300))
        steps.append(str(error.value).split(":")[0])
    assert steps[0] == steps[1]


def test_choose_gives_a_plan():
    problem = replace(KLMS, features=FIXED["features"])
    name, module, plan = choose("auto", problem, Exchange(), None)
    assert (name, module, plan.dtype) == ("numba", numba_engine, np.float32)
    state = init(problem, Exchange(), 2, 1, plan.dtype)
    state, f = module.step(plan, state, np.ones((2, 5)), np.ones((2, 1)))
    assert f.shape == (2, 1)
    assert state.clock == 1


# --- the trace --------------------------------------------------------------------------


def trace_of(mse):
    mse = np.asarray(mse, float)
    at = {"mse": np.arange(1, mse.shape[1] + 1)}
    return Trace({"mse": mse}, at, [], len(mse), mse.shape[1], 0, "numba", "float32", 0.1)


def test_a_trace_gives_the_mean_and_its_error():
    trace = trace_of([[1.0, 2.0], [3.0, 6.0], [5.0, 4.0]])
    np.testing.assert_allclose(trace["mse"], [3, 4])
    np.testing.assert_allclose(trace.error("mse"), [2 / np.sqrt(3), 2 / np.sqrt(3)])


def test_the_tail_is_the_last_tenth_of_each_run():
    trace = trace_of([np.arange(40.0), np.zeros(40)])
    np.testing.assert_allclose(trace.tail(), [37.5, 0])
    np.testing.assert_allclose(trace.tail(share=0.5), [29.5, 0])
    np.testing.assert_allclose(trace_of([[1.0, 2.0, 3.0]]).tail(), [3.0])  # one at least


def test_a_trace_with_gaps_averages_what_is_there():
    trace = trace_of([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan], [5.0, 7.0, np.nan]])
    np.testing.assert_allclose(trace["mse"], [3, 6, np.nan])
    np.testing.assert_allclose(trace.error("mse"), [2 / np.sqrt(3), 1.0, np.nan])
    np.testing.assert_allclose(trace.tail(share=0.5), [np.nan, 5.0, 7.0])


def test_a_trace_of_something_else():
    with pytest.raises(UnknownName, match="unknown recorded quantity 'msd': did you mean 'mse'"):
        _ = trace_of([[1.0]])["msd"]


# --- the paper's examples ---------------------------------------------------------------

PAPER = {
    1: (Example1(n=3000), Features(Gaussian(5.0), 5, 2500), 4),
    2: (Example2(n=3000), Features(Gaussian(5.0), 5, 300), 10),
    3: (Example3(), Features(Gaussian(0.05), 1, 100), 60),
    4: (Example4(), Features(Gaussian(0.05), 2, 200), 50),
}


def steady_states(number):
    """Steady state of every run with the paper's scheme, together and alone: (runs,) each."""
    stream, features, runs = PAPER[number]
    problem = Problem(features, gradient(losses.squared(), schedules.constant(1.0)))
    both = (Exchange(GraphRecipe("random", 20), "cta"), Exchange(None, "cta"))
    return [run(problem, exchange, stream, runs=runs, seed=1).tail() for exchange in both]


@pytest.mark.parametrize(
    ("number", "expected"), [(1, (-18.96, -16.74)), (3, (-23.36, -29.22)), (4, (-26.17, -23.35))]
)
def test_steady_states_of_the_paper(number, expected):
    together, alone = steady_states(number)
    measured = decibels(together.mean()), decibels(alone.mean())
    np.testing.assert_allclose(measured, expected, atol=0.4)
    helps = number != 3  # there each node's hidden state is its own
    assert ((together < alone) == helps).all()


def test_cooperation_helps_in_example_2_in_every_run():
    together, alone = steady_states(2)
    assert (decibels(together) < decibels(alone) - 1).all()


def test_cooperation_helps_in_example_3_when_nodes_see_their_state():
    stream = Example3(inputs="state")
    problem = Problem(
        Features(Gaussian(0.05), 2, 100), gradient(losses.squared(), schedules.constant(1.0))
    )
    both = (Exchange(GraphRecipe("random", 20), "cta"), Exchange(None, "cta"))
    together, alone = (run(problem, exchange, stream, runs=60, seed=1).tail() for exchange in both)
    assert decibels(together.mean()) == pytest.approx(-34.8, abs=0.6)
    assert decibels(alone.mean()) == pytest.approx(-31.1, abs=0.6)


def test_example_5_falls_with_the_number_of_features_towards_twice_the_noise():
    levels = []
    for D in (500, 2000):
        problem = example_problem(D)
        trace = run(problem, Exchange(), Example1(K=1, n=5000), runs=60, seed=1)
        levels.append(decibels(trace.tail().mean()))
    np.testing.assert_allclose(levels, [-15.87, -16.66], atol=0.5)
    assert decibels(2 * 0.1**2) < levels[1] < levels[0]


def test_what_combine_then_adapt_delivers_is_worse_than_what_it_combined():
    features = Features(Gaussian(5.0), 5, 500).draw(0)
    problem = Problem(features, gradient(losses.squared(), schedules.constant(1.0)))
    network = GraphRecipe("random", 20).draw(1)
    stream = Example1(n=1600).draw(4)
    later = stream.rows(1500, 1600)
    error = {}
    for order in ("cta", "atc"):
        trace = run(problem, Exchange(network, order), stream.rows(0, 1500))
        scores = features.transform(later.X.reshape(-1, 5)) @ trace.states[0].theta[:, 0].T
        error[order] = decibels(((scores - later.y.reshape(-1, 1)) ** 2).mean())
    assert error["atc"] < error["cta"] - 1
