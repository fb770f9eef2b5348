"""The thread that hands a file to an agent, and what `--once` means."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_info, threadpool_limits

from dokl.base.errors import BadInput, Diverged
from dokl.cli import commands
from dokl.live.description import ExchangePolicy
from dokl.live.inputs import Arrival
from dokl.live.jobs import agents
from dokl.live.jobs.agents import Feeder, Settings, identity
from dokl.live.jobs.export import learned_so_far
from dokl.live.jobs.up import AgentProcesses, gaps, settings_of
from dokl.live.sources import name_of
from dokl.live.store import Store, TooManyWaiting
from dokl.simulation.learner import Learner
from live_networks import small


class Fake:
    """An agent that answers from a list: errors are raised, the rest is returned."""

    def __init__(self, *answers):
        self.answers, self.problems, self.lines, self.source = list(answers), {}, [], None
        self.network = small()
        self.protocol = SimpleNamespace(queued=0)

    def submit(self, arrival):
        future, answer = Future(), self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def log(self, event, **fields):
        self.lines.append((event, fields))

    def finish_source(self):
        pass


def fed(agent, tmp_path, once=False):
    """A feeder that has handed one arrival to the agent."""
    feeder = Feeder(agent, Settings(tmp_path, "a", data="x.csv", once=once), threading.Event())
    given = Arrival(np.zeros((1, 3)), np.zeros((1, 1)), source="x.csv", position={"bytes": 1})
    feeder._arrivals = lambda: iter([given])
    feeder.start()
    feeder._thread.join(10)
    assert not feeder._thread.is_alive()
    return feeder


def test_inputs_that_may_not_wait_hold_a_file_up_and_do_not_end_it(tmp_path):
    agent = Fake(TooManyWaiting("too many"), {})
    assert fed(agent, tmp_path).failure is None
    assert agent.problems == {}
    assert agent.source["rows"] == 1


def test_inputs_that_may_not_wait_end_a_file_that_is_read_once(tmp_path):
    agent = Fake(TooManyWaiting("too many"))
    assert str(fed(agent, tmp_path, once=True).failure) == "too many"


def test_an_unexpected_end_of_a_source_is_seen(tmp_path):
    agent = Fake(ZeroDivisionError())
    feeder = fed(agent, tmp_path, once=True)
    assert "ZeroDivisionError" in str(feeder.failure)
    assert "ZeroDivisionError" in agent.problems["source"]
    assert feeder._done.is_set()


def test_rows_that_were_passed_over_are_bad_lines(tmp_path):
    agent = Fake({"skipped": ["diverged", "diverged"]})
    fed(agent, tmp_path)
    assert agent.source["bad_lines"] == 2
    assert ("bad line", {"often": True, "why": "diverged", "where": "x.csv, a row"}) in agent.lines


@pytest.mark.parametrize("command", [["agent", "lab.toml", "--name", "a"], ["up", "lab.toml"]])
def test_once_needs_data(command):
    done = CliRunner().invoke(commands, [*command, "--once"])
    assert done.exit_code == 2
    assert "--data" in done.stderr


def test_who_has_no_data_is_not_waited_for(tmp_path):
    every = [
        Settings(tmp_path, name, data, once=True) for name, data in (("a", "a.csv"), ("b", None))
    ]
    crew, ended = AgentProcesses(every), {}
    done, going = SimpleNamespace(is_alive=lambda: False, exitcode=0), threading.Event()
    crew.processes = {"a": done, "b": SimpleNamespace(is_alive=lambda: True)}
    crew.wait(going, ended.__setitem__)
    assert ended == {"a": 0}
    crew.processes = {}
    crew.stop()


def test_export_passes_over_what_a_start_would(tmp_path, monkeypatch):
    network = small()
    store = Store.open(tmp_path / "a.db", identity(network, "a"), "process", network.limits)
    for _ in range(2):
        with store.transaction() as change:
            change.samples(np.ones((5, 3)), np.ones((5, 1)))
    store.close()
    learn, calls = Learner.learn, []

    def diverges_once(learner, *given):
        calls.append(1)
        if len(calls) == 1:
            raise Diverged("too long")
        return learn(learner, *given)

    monkeypatch.setattr(Learner, "learn", diverges_once)
    state, learned = learned_so_far(network, "a", tmp_path)
    assert (learned, int(state.count[0])) == (10, 5)


def test_up_says_what_files_are_missing_or_were_read_before(tmp_path):
    network = small(exchange=ExchangePolicy(mode="off"))
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    state.mkdir()
    (data / "a.csv").write_text("x1,x2,x3,y\n1,2,3,4\n")
    (data / "b.csv").write_text("x1,x2,x3,y\n1,2,3,4\n")
    common = Settings(tmp_path / "lab.toml", "", state=state)
    every = settings_of(network, common, data)
    assert gaps(every, data) == [f"{data} has no file for c"]
    assert gaps(every, None) == []
    store = Store.open(state / "a.db", identity(network, "a"), "process", network.limits)
    with store.transaction() as change:
        size = (data / "a.csv").stat().st_size
        change.offset(name_of(data / "a.csv"), {"bytes": size})
        change.offset(name_of(data / "b.csv"), {"bytes": 3})
    store.close()
    _, text = gaps(every, data)
    assert text.startswith("a: the file was read to its end")
    assert str(state) in text


def test_an_agent_computes_in_one_thread(tmp_path, monkeypatch):
    """Several agents of one machine, with as many threads of BLAS each, wait for each other."""
    seen = []

    def checked(settings):
        seen.extend(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        raise BadInput("that is all")

    monkeypatch.setattr(agents, "_checked", checked)
    with threadpool_limits(2, "blas"), pytest.raises(BadInput, match="that is all"):
        agents.run_agent(Settings(tmp_path / "lab.toml", "a"))
    assert set(seen) == {1}
