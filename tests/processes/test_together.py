"""What a live network is for: lockstep as in the theory, joining, leaving, files, models."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import httpx
import numpy as np
import pytest
from lab import MODEL, PATIENCE, Lab, ring, samples, wait_for

from dokl import load
from dokl.live.description import ExchangePolicy, read
from dokl.live.jobs.export import learned_so_far
from dokl.network.exchange import Exchange, Mixing
from dokl.network.graphs import metropolis
from dokl.simulation.diffusion import init, step


def dokl(*words, **how):
    """Run a command to its end."""
    command = [sys.executable, "-m", "dokl", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **how)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_lockstep_gives_the_thetas_of_the_reference_engine(tmp_path, order):
    names, n = ("a", "b", "c", "d"), 60
    links = [*ring(*names), ("a", "c")]
    policy = ExchangePolicy(mode="lockstep", order=order, patience_seconds=20.0)
    given = {name: samples(n, 10 + k) for k, name in enumerate(names)}
    with Lab(tmp_path, links, exchange=policy) as lab:
        lab.start()
        for start in range(0, n, 15):
            for name in names:
                X, y = given[name]
                lab.post(name, X[start : start + 15], y[start : start + 15])
        for name in names:
            wait_for(lambda: lab.status(name)["learned"] == n, f"{name} took all rounds")  # noqa: B023
        if order == "atc":  # the last combination follows the last sample
            wait_for(lambda: all(lab.status(name)["step"] == n for name in names), "the last round")
            time.sleep(0.5)
        for name in names:
            assert lab.stop(name) == 0
        network = lab.network
        found = [learned_so_far(network, name, tmp_path / "lab.state")[0] for name in names]
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(4))
    graph.add_edges_from((names.index(a), names.index(b)) for a, b in links)
    exchange = Exchange(metropolis(graph), order, mixing=Mixing(rule="ios"))  # the default
    problem = network.problem()
    state = init(problem, exchange, 4)
    for i in range(n):
        X = np.stack([given[name][0][i] for name in names])
        Y = np.stack([given[name][1][i] for name in names])[:, None]
        state, _ = step(problem, exchange, state, X, Y)
    for k in range(4):
        live, theory = found[k].theta[0], state.theta[k]
        assert np.abs(live - theory).max() < 1e-4 * np.abs(theory).max()


def test_a_newcomer_joins_without_restarts_and_a_revoked_node_is_shut_out(tmp_path):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start()
        for i in range(30):
            for k, name in enumerate("abc"):
                lab.post(name, *samples(50, 100 * k + i))
        pids = {name: lab.processes[name].pid for name in "abc"}
        told = dokl("network", "add-node", lab.path, "d", "--link", "a", "--link", "b")
        assert "reload" in told.stdout + told.stderr
        lab.network = read(lab.path)
        dokl("agent", "reload", lab.path, "--name", "a", "--name", "b")
        lab.start("d")
        lab.neighbours_up("d")
        wait_for(lambda: lab.error("d") < 0.2, "d knows what its neighbours know")
        assert lab.status("d")["samples"] == 0
        assert lab.lines("d", "joined")
        lab.post("d", *samples(50, 7))
        for name in "abc":
            assert lab.status(name)["pid"] == pids[name]
            assert lab.status(name)["samples"] == 30 * 50
        dokl("network", "revoke", lab.path, "d")
        lab.network = replace(read(lab.path), nodes=lab.network.nodes)
        dokl("agent", "reload", lab.path, "--name", "a", "--name", "b")
        wait_for(lambda: "d" not in lab.status("a")["neighbours"], "a has forgotten d")
        wait_for(
            lambda: not any(p["up"] for p in lab.status("d")["neighbours"].values()), "d is out"
        )
        lab.neighbours_up("a", "b", "c")
        before = lab.status("a")["bytes_in"]
        lab.post("b", *samples(50, 8))
        wait_for(lambda: lab.status("a")["bytes_in"] > before, "a still hears b")


def test_certificates_are_renewed_under_load_and_no_sample_is_lost(tmp_path):
    with Lab(tmp_path, ring("a", "b")) as lab:
        lab.start()
        lab.neighbours_up("a")
        first = lab.status("a")["certificate_expires"]
        sent = 0
        dokl("network", "renew", lab.path, "--days", "90")
        dokl("agent", "reload", lab.path)
        limit = time.monotonic() + PATIENCE
        while lab.status("a")["certificate_expires"] <= first or not lab.lines("b", "reloaded"):
            sent += lab.post("a", *samples(20, sent))["accepted"]
            assert time.monotonic() < limit, lab.tail("a") + lab.tail("b")
        lab.neighbours_up("a")
        sent += lab.post("a", *samples(20, sent))["accepted"]
        assert lab.status("a")["samples"] == sent
        before = lab.status("b")["neighbours"]["a"]["received"]
        lab.post("a", *samples(20, sent))
        wait_for(lambda: lab.status("b")["neighbours"]["a"]["received"] > before, "b hears a")


def test_a_description_with_other_features_is_refused_by_a_running_agent(tmp_path):
    with Lab(tmp_path, [], names=["a"]) as lab:
        lab.start()
        lab.post("a", *samples(20, 1))
        lab.write(replace(lab.network, model=replace(MODEL, sigma=2.0)))
        lab.signal("a", signal.SIGHUP)
        wait_for(lambda: lab.lines("a", "reload refused"), "a refuses")
        assert any("fingerprint" in text for text in lab.status("a")["problems"])
        assert lab.post("a", *samples(20, 2))["samples"] == 40


# -- files and models --------------------------------------------------------------------------
def write_rows(path, X, y, header=True, mode="w"):
    lines = ["x1,x2,y"] if header else []
    rows = np.column_stack([X, y]).tolist()
    lines += [",".join(repr(value) for value in row) for row in rows]
    with path.open(mode) as file:
        file.write("\n".join(lines) + "\n")


def test_a_followed_file_is_learned_once_through_kills_and_rotation(tmp_path):
    file = tmp_path / "readings.csv"
    write_rows(file, *samples(300, 1))
    off = ExchangePolicy(mode="off")
    options = ["--data", str(file), "--follow", "--batch", "20"]
    with Lab(tmp_path, [], names=["a"], exchange=off) as lab:
        lab.start(options=options)
        for i in range(3):
            write_rows(file, *samples(200, 2 + i), header=False, mode="a")
            time.sleep(0.1)
            lab.kill("a")
            lab.start(options=options)
        with file.open("a") as end:
            end.write("this,is,bad\n0.5,0.5")
        wait_for(lambda: lab.status("a")["samples"] == 900, "all rows are in")
        wait_for(lambda: lab.metric("a", "dokl_bad_lines_total") == 1, "the bad line is counted")
        with file.open("a") as end:
            end.write(",0.25\n")
        wait_for(lambda: lab.status("a")["samples"] == 901, "the half line is whole now")
        file.rename(tmp_path / "readings.csv.1")
        write_rows(file, *samples(100, 9))
        wait_for(lambda: lab.status("a")["samples"] == 1001, "the new file is read")
        lab.stop("a")
        state, learned = learned_so_far(lab.network, "a", tmp_path / "lab.state")
        assert learned == 1001
        assert int(state.count[0]) == 1001


def test_export_is_an_ordinary_model_and_a_warm_start(tmp_path):
    (tmp_path / "warm").mkdir()
    X, _ = samples(40, 5)
    model = tmp_path / "a.safetensors"
    with Lab(tmp_path, [], names=["a"], model=replace(MODEL, intercept=1.0)) as lab:
        lab.start()
        for i in range(20):
            lab.post("a", *samples(50, i))
        predicted = lab.predict("a", X)
        dokl("agent", "export", lab.path, model, "--name", "a")  # while it runs
        assert np.abs(load(model).predict(X) - predicted).max() < 1e-6
        write_rows(tmp_path / "new.csv", X, np.zeros(40))
        out = dokl("predict", model, tmp_path / "new.csv").stdout.splitlines()
        assert len(out) >= 40
        state = tmp_path / "elsewhere"
        lab.stop("a")
        lab.start("a", options=["--model", str(model), "--state", str(state)])
        assert np.abs(lab.predict("a", X) - predicted).max() < 1e-6
        assert lab.status("a")["samples"] == 0


def test_up_runs_everybody_and_control_c_ends_them(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        for k, name in enumerate("abc"):
            write_rows(data / f"{name}.csv", *samples(400, k))
        up = subprocess.Popen(
            [sys.executable, "-m", "dokl", "up", str(lab.path), "--data", str(data)],
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            for name in "abc":
                lab.processes[name] = up  # for `answers`
                lab.answers(name)
                wait_for(lambda: finished(lab, name), f"{name} has read its file")  # noqa: B023
            pids = [lab.status(name)["pid"] for name in "abc"]
            up.send_signal(signal.SIGINT)
            assert up.wait(PATIENCE) == 0
        finally:
            up.stderr.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        for name in "abc":
            assert learned_so_far(lab.network, name, tmp_path / "lab.state")[1] == 400
        dokl("up", lab.path, "--data", data, "--once", "--quiet")  # nothing is left to learn


def test_control_c_ends_up_in_order_also_while_everybody_starts(tmp_path):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        up = subprocess.Popen(
            [sys.executable, "-m", "dokl", "up", str(lab.path), "--quiet"], start_new_session=True
        )
        try:
            wait_for((tmp_path / "lab.state" / "a.db.lock").exists, "a starts")
            up.send_signal(signal.SIGINT)
            assert up.wait(PATIENCE) == 0
        finally:
            up.kill()
            up.wait()


def test_up_once_ends_though_one_has_no_data(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write_rows(data / "a.csv", *samples(100, 1))
    with Lab(tmp_path, ring("a", "b")) as lab:
        dokl("up", lab.path, "--data", data, "--once", "--quiet")
        assert learned_so_far(lab.network, "a", tmp_path / "lab.state")[1] == 100


def test_a_reload_while_it_starts_is_done_when_it_has(tmp_path):
    with Lab(tmp_path, [], names=["a"]) as lab:
        lab.start(wait=False)
        lock = tmp_path / "lab.state" / "a.db.lock"
        wait_for(lambda: lock.exists() and lock.read_text().strip(), "a has its journal")
        lab.signal("a", signal.SIGHUP)
        wait_for(lambda: lab.lines("a", "reloaded"), "a has reloaded")
        assert lab.processes["a"].poll() is None


def finished(lab, name):
    try:
        source = lab.status(name)["source"]
    except httpx.TransportError:
        return False
    return source is not None and source["finished"]


def test_a_source_that_fails_fails_the_command_too(tmp_path):
    with Lab(tmp_path, [], names=["a"], exchange=ExchangePolicy(mode="off")) as lab:
        lab.start("a", options=["--data", str(tmp_path / "absent.csv"), "--once"], wait=False)
        assert lab.processes["a"].wait(PATIENCE) == 1
        assert "absent.csv" in lab.tail("a")


def test_agents_end_when_the_process_that_started_them_is_killed(tmp_path):
    with Lab(tmp_path, ring("a", "b")) as lab:
        up = subprocess.Popen(
            [sys.executable, "-m", "dokl", "up", str(lab.path), "--quiet"], start_new_session=True
        )
        lab.processes["a"] = up
        lab.answers("a")
        wait_for(lambda: (tmp_path / "lab.state" / "b.log").exists(), "b starts")
        pid = lab.status("a")["pid"]
        up.kill()
        up.wait()

        def gone():
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            return False

        wait_for(gone, "a has ended")
