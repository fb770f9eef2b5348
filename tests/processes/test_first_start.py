"""Agents that start on a machine that has compiled nothing yet."""

import httpx
from lab import Lab, wait_for

SECONDS = 400.0  # compiling takes a minute, on a machine that does nothing else
NAMES = ("a", "b", "c")


def test_one_agent_compiles_and_all_say_that_they_are_not_ready(tmp_path):
    seen = {name: set() for name in NAMES}

    def ready(lab, name):
        try:
            lives, answer = lab.get(name, "/healthz"), lab.get(name, "/readyz")
        except httpx.TransportError:  # it has not even begun
            return False
        phase = answer.json().get("error", "").partition(" (")[2].partition(")")[0]
        seen[name].add((lives.status_code, phase))
        return answer.status_code == 200

    with Lab(tmp_path, [("a", "b"), ("b", "c")]) as lab:
        lab.start(env={"NUMBA_CACHE_DIR": str(tmp_path / "numba")}, wait=False)
        wait_for(
            lambda: all({name: ready(lab, name) for name in NAMES}.values()),
            "all are ready",
            SECONDS,
        )
        for name in NAMES:
            assert {code for code, _ in seen[name]} == {200}
            assert {phase for _, phase in seen[name]} & {"compiling", "waiting"}
            events = [line["event"] for line in lab.lines(name)]
            assert events.index("compiling") < events.index("compiled") < events.index("started")
        waited = [line for name in NAMES for line in lab.lines(name, "compiling")
                  if "another process" in line["text"]]  # fmt: skip
        assert len(waited) >= len(NAMES) - 1  # by turns, one function each
        lab.neighbours_up("b")
