"""Partitions, slow links, jumping clocks and full disks."""

import itertools
import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from lab import MODEL, PATIENCE, Lab, body, free_ports, ring, samples, wait_for
from proxy import Proxy

from dokl.live.description import ExchangePolicy


def apart(lab):
    """The largest difference between two nodes' predictions."""
    X, _ = samples(200, 11)
    found = [lab.predict(name, X) for name in ("a", "b")]
    return float(np.abs(found[0] - found[1]).max())


def through_proxy(tmp_path, rate=None, **options):
    """A network of two whose link goes through a proxy."""
    lab = Lab(tmp_path, [("a", "b")], **options)
    proxy = Proxy(lab.network.node("a").address, rate=rate)
    lab.write(replace(lab.network, routes={"b->a": proxy.address}))
    return lab, proxy


@pytest.mark.parametrize("how", ["pause", "cut"])
def test_a_partition_heals(tmp_path, how):
    lab, proxy = through_proxy(tmp_path)
    with lab, proxy:
        lab.start()
        lab.neighbours_up("a")
        getattr(proxy, how)()
        wait_for(lambda: not lab.status("a")["neighbours"]["b"]["up"], "a misses b", 20)
        wait_for(lambda: not lab.status("b")["neighbours"]["a"]["up"], "b misses a", 20)
        seeds = itertools.count()

        def teach():  # both go on, each with half of the inputs
            X, y = samples(50, next(seeds))
            for name, sign in (("a", 1.0), ("b", -1.0)):
                half = X[:, 0] * sign > 0
                lab.post(name, X[half], y[half])

        for _ in range(40):
            teach()
        wait_for(lambda: apart(lab) > 0.5, "each has gone its own way")
        assert lab.metric("a", "dokl_neighbour_up", neighbour="b") == 0
        proxy.heal()
        lab.neighbours_up("a")

        def agree():  # own rows say how far the only neighbour may pull, so it takes new ones
            teach()
            time.sleep(0.5)  # some exchanges after the last rows, which each has of its own half
            return apart(lab) < 0.05

        wait_for(agree, "they agree again", 2 * PATIENCE)
        assert max(lab.error("a"), lab.error("b")) < 0.4


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_slow_link_delays_and_does_not_stop(tmp_path, mode):
    model = replace(MODEL, D=20_000)  # 80 kB a message, 0.32 s of this link
    policy = ExchangePolicy(mode=mode, every_seconds=0.1)
    lab, proxy = through_proxy(tmp_path, rate=250_000, model=model, exchange=policy)
    with lab, proxy:
        lab.start()
        lab.neighbours_up("a")
        lab.neighbours_up("b")
        began, took = time.monotonic(), []
        i = 0
        while time.monotonic() < began + 6:
            for name in ("a", "b"):
                at = time.monotonic()
                lab.post(name, *samples(10, i))
                took.append(time.monotonic() - at)
                i += 1
        received = lab.status("a")["neighbours"]["b"]["received"]
        assert received >= 4  # of about 18 that the link can carry
        assert received <= 40
        assert np.median(took) < 1  # a sender of samples does not wait for the link
        wait_for(lambda: apart(lab) < 0.1, "they agree")


def test_a_clock_that_jumps_harms_nobody(tmp_path):
    shift = tmp_path / "shift"
    shift.write_text("0")
    with Lab(tmp_path, ring("a", "b")) as lab:
        lab.start(env={"DOKL_CLOCK_SHIFT": str(shift)})
        lab.neighbours_up("a")
        lab.post("a", *samples(50, 1))
        shift.write_text("-86400")
        wait_for(lambda: lab.metric("a", "dokl_clock_jumps_total") >= 1, "a sees the jump")
        shift.write_text("+3600")
        wait_for(lambda: lab.metric("a", "dokl_clock_jumps_total") >= 2, "a sees the next jump")
        # A node that starts with a clock of yesterday is heard all the same.
        shift.write_text("-86400")
        lab.kill("b")
        lab.start("b", env={"DOKL_CLOCK_SHIFT": str(shift)})
        lab.neighbours_up("a", "b")
        before = lab.status("a")["neighbours"]["b"]["received"]
        for i in range(20):
            lab.post("b", *samples(50, 10 + i))
        wait_for(lambda: lab.status("a")["neighbours"]["b"]["received"] > before, "a hears b")
        wait_for(lambda: lab.error("a") < 0.3, "a learns from b")
        assert lab.status("b")["samples"] == 1000


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, for its owner alone."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(place)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_refuses_samples_and_loses_none(tmp_path, small_disk):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start("a", options=["--state", str(small_disk)])
        lab.start("b", "c")
        lab.neighbours_up("a")
        acknowledged = 0
        for i in range(5):
            acknowledged += lab.post("a", *samples(50, i))["accepted"]
        filler = small_disk / "filler"
        fill_up(filler)
        refused = 0
        for i in range(60):  # what room the journal has left is used up first
            answer = lab.post_raw("a", body(*samples(500, 100 + i)))
            if answer.status_code == 200:
                acknowledged += 500
            else:
                assert answer.status_code == 507, answer.text
                assert "disk is full" in answer.json()["error"]
                refused += 1
        assert refused > 0
        assert lab.metric("a", "dokl_journal_failures_total") > 0
        assert any("disk is full" in text for text in lab.status("a")["problems"])
        lab.post("b", *samples(50, 1))  # the others go on
        assert lab.status("a")["samples"] == acknowledged
        filler.unlink()
        acknowledged += lab.post("a", *samples(50, 9))["accepted"]
        wait_for(lambda: not lab.status("a")["problems"], "a is well again")
        lab.kill("a")
        lab.start("a", options=["--state", str(small_disk)])
        assert lab.status("a")["samples"] == lab.status("a")["learned"] == acknowledged
        lab.stop("a")


def probe(lab):
    return lab.predict("a", samples(5, 77)[0]).tolist()


def test_a_restart_on_a_full_disk_still_predicts(tmp_path, small_disk):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start("a", options=["--state", str(small_disk)])
        acknowledged = sum(lab.post("a", *samples(50, i))["accepted"] for i in range(5))
        lab.has_learned("a")  # a newcomer waits for its neighbours first, who never come
        before = probe(lab)
        filler = small_disk / "filler"
        for end in (lab.kill, lab.stop):  # with a write-ahead log, and with none
            end("a")
            fill_up(filler)
            lab.start("a", options=["--state", str(small_disk)])
            assert probe(lab) == before != [0.0] * 5
            assert lab.status("a")["samples"] == acknowledged
            answers = [lab.post_raw("a", body(*samples(500, 100 + i))) for i in range(8)]
            assert {answer.status_code for answer in answers} <= {200, 507}
            assert answers[-1].status_code == 507
            acknowledged += sum(500 for answer in answers if answer.status_code == 200)
            filler.unlink()
            acknowledged += lab.post("a", *samples(50, 9))["accepted"]
            wait_for(lambda: not lab.status("a")["problems"], "a is well again")
            lab.has_learned("a")
            before = probe(lab)
        assert lab.status("a")["learned"] == acknowledged
        lab.stop("a")


def test_free_ports_are_different():
    assert len(set(free_ports(50))) == 50
