"""Method "squares" by processes: sums over real links, kill -9, and every total adds up."""

from dataclasses import replace

import numpy as np
from lab import Lab, ring, samples, wait_for
from test_crashes import Client, after_kills, assert_predicts, batches, kill_and_restart

from dokl.live.description import ExchangePolicy, Model
from dokl.live.jobs.export import learned_so_far

SQUARES = Model(sigma=1.0, D=60, seed=3, method="squares")
SUMS = ExchangePolicy(every_seconds=0.1, fewest_rows=20)


def knows(lab, name, origins, rows):
    """Whether it has so many rows of each origin; 5 % may be held back."""
    known = lab.sharing(name)["origins"]
    return len(known) == origins and min(known.values()) >= rows


def test_every_node_counts_every_row_once_after_kills(tmp_path):
    names = "a", "b", "c"
    with after_kills(tmp_path, 12, ("b", "a"), seed=0, model=SQUARES, exchange=SUMS) as lab:

        def agree():
            known = {name: lab.sharing(name)["origins"] for name in names}
            return (
                all(len(each) == 3 and min(each.values()) >= 228 for each in known.values())
                and known["a"]["c"] == known["b"]["c"]
                and known["a"]["b"] == known["c"]["b"]
                and known["b"]["a"] == known["c"]["a"]
            )

        wait_for(agree, "nearly all rows, the same of each origin", 90)
        for name in names:
            found = lab.sharing(name)
            assert found["rows"] == sum(found["origins"].values())
            assert max(found["origins"].values()) == found["origins"][name] == 240
            assert lab.status(name)["samples"] == 240
            assert not lab.status(name)["problems"]
        assert_predicts(lab, "a")


def test_large_sums_travel_in_pieces(tmp_path):
    """2.9 MB an origin, over links with certificates, relayed by the node in the middle."""
    large = replace(SQUARES, D=1200)
    # Rows are learned in slices, and a seal after any of them may leave few for the next one.
    policy = ExchangePolicy(every_seconds=0.1, fewest_rows=1, bytes_per_second=0)
    with Lab(tmp_path, [("a", "b"), ("b", "c")], model=large, exchange=policy) as lab:
        lab.start()
        for seed, name in enumerate(("a", "b", "c")):
            lab.post(name, *samples(40, seed))
        for name in ("a", "b", "c"):
            wait_for(lambda name=name: knows(lab, name, 3, 38), "nearly all rows", 90)
            assert not lab.status(name)["problems"]
            assert not any(lab.status(name)["refused"].values())
        assert min(lab.status(name)["bytes_in"] for name in "ac") > 2 * 2_800_000


def test_kill_leaves_the_same_bits_with_exchange_off(tmp_path):
    states = {}
    for killed in (False, True):
        folder = tmp_path / str(killed)
        folder.mkdir()
        off = ExchangePolicy(mode="off")
        with Lab(folder, ring("a", "b"), model=SQUARES, exchange=off, secure=False) as lab:
            lab.start("a")
            client = Client(lab, "a", batches(7, 12))
            client.start()
            if killed:
                kill_and_restart(lab, "a", client, np.random.default_rng(1))
            client.finish()
            lab.kill("a")
            state, learned = learned_so_far(lab.network, "a", folder / "lab.state")
            states[killed] = lab.network.learner().pack(state), learned
    assert states[True] == states[False]
