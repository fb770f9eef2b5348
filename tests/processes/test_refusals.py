"""Refusals that last are told at both ends and cost the weight; so are two under one name."""

import itertools
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
from lab import MODEL, Lab, free_ports, ring, samples, wait_for
from test_strangers import message, say, session

from dokl.live.description import read
from dokl.live.transports.zenoh_settings import key

HOUR = 3600 * 10**9  # nanoseconds


def problem(lab, name, words):
    """Whether an agent tells of a problem in these words."""
    return any(words in text for text in lab.status(name)["problems"])


def weight(lab, name, peer):
    return lab.status(name)["neighbours"][peer]["weight"]


def elsewhere(lab, name):
    """The network as a second process sees it that is this node at another address."""
    ports = free_ports(2)
    node = replace(lab.network.node(name), address=f"127.0.0.1:{ports[0]}",
                   http=f"127.0.0.1:{ports[1]}")  # fmt: skip
    return replace(lab.network, nodes={**lab.network.nodes, name: node})


def test_another_layout_is_a_problem_and_not_a_healthy_neighbour(tmp_path):
    with Lab(tmp_path, ring("a", "b")) as lab:
        lab.start("a")
        with session(lab.network, "b") as other:
            token = other.liveliness().declare_token(key(lab.network, "alive", "b"))
            lab.neighbours_up("a", "b")
            assert weight(lab, "a", "b") == 0.5
            theirs = bytearray(message(lab, np.ones((1, MODEL.D), np.float32), 1))
            theirs[4] = 2
            for _ in range(8):
                say(other, key(lab.network, "theta", "b"), bytes(theirs))
                time.sleep(0.4)
            wait_for(lambda: problem(lab, "a", "layout 2"), "a tells")
            assert weight(lab, "a", "b") == 0.0
            assert lab.status("a")["neighbours"]["b"]["not_used"] == "version"
            for step in range(2, 5):
                say(other, key(lab.network, "theta", "b"),
                    message(lab, np.full((1, MODEL.D), 0.01, np.float32), step))  # fmt: skip
                time.sleep(0.2)
            wait_for(lambda: weight(lab, "a", "b") == 0.5, "a uses b")
            assert not problem(lab, "a", "layout")
            token.undeclare()


def test_a_thief_of_a_key_locks_nobody_out(tmp_path):
    with Lab(tmp_path, ring("a", "b")) as lab:
        lab.start()
        lab.neighbours_up("a")
        lab.post("b", *samples(20, 0))
        with session(elsewhere(lab, "b"), "b") as thief:
            lie = np.full((1, MODEL.D), 0.5, np.float32)
            ahead = message(lab, lie, 1, incarnation=2**62 - 1)

            def is_ahead():
                say(thief, key(lab.network, "theta", "b"), ahead)
                return lab.status("a")["refused"]["ahead"]

            wait_for(is_ahead, "a refuses what is ahead of its clock")
            stolen, steps = time.time_ns() + HOUR, itertools.count(1)

            def go_on():
                say(thief, key(lab.network, "theta", "b"), message(lab, lie, next(steps), stolen))
                lab.post("b", *samples(20, 0))
                return problem(lab, "a", "two agents speak as 'b'")

            wait_for(go_on, "a hears two")
            assert weight(lab, "a", "b") == 0.0
            wait_for(
                lambda: go_on() and problem(lab, "b", "messages of two agents"), "b reports it"
            )
            assert weight(lab, "b", "a") == 0.0

        def honest():
            lab.post("b", *samples(20, 1))
            with suppress(KeyError):
                return weight(lab, "a", "b") == 0.5 and weight(lab, "b", "a") == 0.5

        wait_for(honest, "b is heard again")
        # `a` has no rows of its own and believed the lie for a moment: that it was far off, and
        # that `a` then predicted badly, is true and stays in the list for a while.
        of_the_lie = ("was far from all others", "predicts this node's rows")
        for name in "ab":
            left = lab.status(name)["problems"]
            assert not [words for words in left if not any(lie in words for lie in of_the_lie)]


def test_two_agents_under_one_name_all_say_so(tmp_path):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start()
        lab.neighbours_up("a")
        first, network = lab.path, elsewhere(lab, "b")
        lab.clients.pop("b").close()
        lab.processes["first b"] = lab.processes.pop("b")
        (tmp_path / "again").mkdir()
        lab.path = tmp_path / "again" / "lab.toml"
        about = replace(network.about, certificates=str(lab.network.folder.absolute()))
        lab.write(replace(network, about=about, path=lab.path))
        lab.start("b")  # another one, on "another host"
        lab.neighbours_up("b", "a")
        wait_for(lambda: problem(lab, "a", "two agents speak as 'b'"), "a tells of two")
        assert weight(lab, "a", "b") == 0.0
        wait_for(lambda: problem(lab, "b", "with this node's name"), "the second b tells")
        lab.stop("b")
        lab.clients.pop("b").close()
        lab.processes["second b"], lab.processes["b"] = (
            lab.processes.pop("b"), lab.processes.pop("first b")
        )  # fmt: skip
        lab.path = first
        lab.network = read(first)
        wait_for(lambda: not lab.status("a")["problems"], "a is content")
        wait_for(lambda: not lab.status("b")["problems"], "the first b is content")
        both = [line["text"] for line in lab.lines("b", "problem")]  # one file for the two of them
        assert sum("two agents with this node's name" in text for text in both) >= 2
