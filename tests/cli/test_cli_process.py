"""What needs a process of its own: Ctrl-C, pipes, a full disk, a terminal, a shell."""

import os
import pty
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from commands import INPUTS, dokl, fails, make_folder, readings, write_csv
from dokl.tables.jobs import train as job
from dokl.tables.models import TableModel
from variants import first

COMMAND = [sys.executable, "-m", "dokl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("process"))


def started(*arguments, **how):
    words = [*COMMAND, *map(str, arguments)]
    how = {"stdin": subprocess.DEVNULL} | how
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def finished(process, code):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out, err


# -- Ctrl-C ------------------------------------------------------------------------------------
def slow_stream(file, rows, pause):
    """Write a header and rows, some now, the rest bit by bit."""
    file.write("a,b,y\n")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, 3)).round(3)
    for start in range(0, rows, 100):
        file.write("".join(f"{a},{b},{y}\n" for a, b, y in values[start : start + 100]))
        file.flush()
        time.sleep(pause)


def interrupted(tmp_path, rows, start, signum, code):
    """Output and messages of a training that was stopped after 430 of its rows, and the command
    that goes on; beside it r.csv with all rows, and the model whole.dokl of them.
    """
    data, pipe = tmp_path / "r.csv", tmp_path / "pipe"
    with open(data, "w") as file:
        slow_stream(file, rows, 0)
    dokl("train", data, *start, "--model", tmp_path / "whole.dokl")  # and all is compiled
    os.mkfifo(pipe)
    process = started("train", pipe, *start, "--model", tmp_path / "m.dokl")
    with open(pipe, "w") as file, open(data) as whole:
        file.writelines(line for line, _ in zip(whole, range(431), strict=False))
        file.flush()
        # It has read everything when the pipe is empty; then it waits for more.
        wait_until_learned(file, process)
        process.send_signal(signum)
        out, err = finished(process, code)
    command = shlex.split(err.strip().splitlines()[-1])
    return out, err, [str(data) if word == str(pipe) else word for word in command]


@pytest.mark.parametrize(("signum", "code"), first((signal.SIGINT, 130), (signal.SIGTERM, 143)))
def test_interrupted_training_goes_on_to_the_same_model_bit_for_bit(tmp_path, signum, code):
    start = ("--target", "y", "--method", "gradient", "--components", "60", "--chunk", "100")
    out, err, command = interrupted(tmp_path, 1000, start, signum, code)
    assert "prequential" in out
    assert "Go on with:" in err
    assert command[:2] == ["dokl", "train"]
    assert 100 <= int(command[command.index("--skip") + 1]) <= 430
    dokl(*command[1:])
    assert (tmp_path / "m.dokl").read_bytes() == (tmp_path / "whole.dokl").read_bytes()


def stopped(signum, least, *start):
    """Output of a training in this process that hears a signal once so many rows are learned, and
    the command that goes on.
    """
    learn = job._Work.learn

    def stopping(work, part, settled):
        if work.score.n >= least:
            signal.raise_signal(signum)
        learn(work, part, settled)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job._Work, "learn", stopping)
        result = dokl("train", *start, code=128 + signum)
    return result.stdout, shlex.split(result.stderr.strip().splitlines()[-1])


def test_interrupted_experts_go_on_to_the_same_model(tmp_path, short_searches):
    data = tmp_path / "r.csv"
    with open(data, "w") as file:
        slow_stream(file, 500, 0)
    start = (data, "--target", "y", "--components", "40", "--chunk", "100")
    out, command = stopped(signal.SIGINT, 200, *start, "--model", tmp_path / "m.dokl")
    assert "intervals held" in out
    assert 200 <= int(command[command.index("--skip") + 1]) < 400
    dokl(*command[1:])
    dokl("train", *start, "--model", tmp_path / "whole.dokl")
    parts, once = TableModel.load(tmp_path / "m.dokl"), TableModel.load(tmp_path / "whole.dokl")
    assert parts.rows_read == once.rows_read == 500
    rows = {"a": np.linspace(-2, 2, 50), "b": np.linspace(1, -1, 50)}
    # The file that was continued holds covariances in single precision (docs/policy.md).
    np.testing.assert_allclose(parts.predict(rows), once.predict(rows), rtol=0, atol=1e-7)


def test_a_network_stops_between_parts_and_goes_on_to_the_same_model(tmp_path, short_searches):
    """It took all rows for one part: 1,080 of them were learned before a signal was heard."""
    rng, model = np.random.default_rng(0), tmp_path / "m.dokl"
    rows = [f"{a:.3f},{b:.3f},{a * b:.3f}" for a, b in rng.normal(size=(200, 2))]
    lines = [f"{row},{'ABCD'[i % 4]}\n" for i, row in enumerate(rows)]
    (tmp_path / "r.csv").write_text("a,b,y,place\n" + "".join(lines))
    start = (tmp_path / "r.csv", "--target", "y", "--nodes", "place", "--graph", "ring",
             "--components", "20")  # fmt: skip
    _, command = stopped(signal.SIGTERM, 60, *start, "--model", model)
    assert 60 <= int(command[command.index("--skip") + 1]) < 160
    dokl(*command[1:])
    dokl("train", *start, "--model", tmp_path / "whole.dokl")
    parts, once = TableModel.load(model), TableModel.load(tmp_path / "whole.dokl")
    assert parts.rows_read == once.rows_read == 200
    new = {"a": np.linspace(-2, 2, 50), "b": np.linspace(1, -1, 50)}
    for node in "ABCD":
        found = parts.predict(new, nodes=node), once.predict(new, nodes=node)
        np.testing.assert_allclose(*found, atol=1e-9)


def test_a_signal_after_the_last_row_finds_the_work_done(tmp_path, monkeypatch):
    """It was told as interrupted, with a command that passes over all rows."""
    data, model = tmp_path / "r.csv", tmp_path / "m.dokl"
    with open(data, "w") as file:
        slow_stream(file, 100, 0)
    learn, save = job._Work.learn, TableModel.save

    def at_the_last(work, part, settled):
        learn(work, part, settled)
        if work.score.n == 100:
            signal.raise_signal(signal.SIGTERM)

    def saving(model, path):
        signal.raise_signal(signal.SIGINT)
        return save(model, path)

    monkeypatch.setattr(job._Work, "learn", at_the_last)
    monkeypatch.setattr(TableModel, "save", saving)
    result = dokl("train", data, "--target", "y", "--components", 20, "--model", model)
    assert "interrupted" not in result.stderr
    assert TableModel.load(model).rows_read == 100
    again = ("train", data, "--target", "y", "--components", 20, "--model", tmp_path / "n.dokl")
    told = dokl(*again, "--passes", 2, "--method", "gradient", code=143).stderr
    assert "--continue --passes" not in told  # one is left
    assert "--skip" not in told


def wait_until_learned(file, process):
    """Until a process has read the pipe to its end, and all its threads sleep."""
    import fcntl
    import struct
    import termios

    asleep, end = 0, time.monotonic() + 300
    while asleep < 10 and time.monotonic() < end:
        time.sleep(0.02)
        (waiting,) = struct.unpack("i", fcntl.ioctl(file, termios.FIONREAD, b"\0" * 4))
        asleep = 0 if waiting or is_busy(process) else asleep + 1


def is_busy(process):
    """Whether a thread of it computes, or waits for a core or for the disk."""
    states = Path(f"/proc/{process.pid}/task").glob("*/stat")
    try:
        return any(each.read_text().rpartition(")")[2].split()[0] != "S" for each in states)
    except OSError:  # a thread has just ended
        return True


def test_interrupted_before_anything_was_learned_saves_nothing(tmp_path):
    pipe, model = tmp_path / "pipe", tmp_path / "m.dokl"
    os.mkfifo(pipe)
    process = started("train", pipe, "--target", "y", "--model", model)
    with open(pipe, "w") as file:
        file.write("a,y\n1,2\n")
        file.flush()
        wait_until_learned(file, process)
        process.send_signal(signal.SIGINT)
        _, err = finished(process, 1)
    assert "nothing was saved" in err
    assert not model.exists()


# -- pipes -------------------------------------------------------------------------------------
def test_predictions_come_before_the_input_ends(folder):
    process = started("predict", folder / "y.dokl", "-", stdin=subprocess.PIPE)
    process.stdin.write("a,b,place\n0.1,0.2,roof\n")
    process.stdin.flush()
    assert process.stdout.readline() == "prediction\n"
    first = float(process.stdout.readline())
    process.stdin.write("0.1,0.2,ro")  # half a line is no row yet
    process.stdin.flush()
    process.stdin.write("of\n")
    process.stdin.flush()
    assert float(process.stdout.readline()) == first
    out, _ = finished(process, 0)
    assert out == ""


def test_a_closed_pipe_ends_it_cleanly(folder, tmp_path):
    data = write_csv(tmp_path / "r.csv", readings(8000))  # 150 kB of answers: pipes hold 64
    with started("predict", folder / "y.dokl", data, "--chunk", "100") as process:
        assert process.stdout.readline() == "prediction\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_a_full_disk_behind_stdout_is_one_line(folder):
    with open("/dev/full", "w") as full:
        words = [*COMMAND, "predict", str(folder / "y.dokl"), str(folder / "r.csv")]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.strip() == "dokl: stdout: No space left on device"


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("--help", ""),
        ("run --example", "1"),
        ("inspect y.dokl", "1"),
    ],
)
def test_a_full_disk_behind_whatever_is_printed_is_one_line(folder, words, unbuffered):
    how = {"cwd": folder, "env": os.environ | {"PYTHONUNBUFFERED": unbuffered}, "timeout": 300}
    with open("/dev/full", "w") as full:
        command = [*COMMAND, *words.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, **how)
    assert done.returncode == 1
    assert done.stderr.strip() == "dokl: stdout: No space left on device"


# -- a full disk -------------------------------------------------------------------------------
@contextmanager
def full_disk(place):
    """Fill a file system of 64 kB, which only root can have; for others a limit on files."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True
    )
    if mounted.returncode == 0:
        yield lambda: (place / "filler").write_bytes(b"\0" * available(place)), nullcontext
        subprocess.run(["umount", place], check=True)
    else:
        yield lambda: None, small_files


def available(place):
    free = os.statvfs(place)
    return free.f_bavail * free.f_bsize


@contextmanager
def small_files():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_earlier_files(folder, tmp_path):
    with full_disk(tmp_path) as (fill, limited):
        check_full_disk(folder, tmp_path, fill, limited)


def test_a_limit_on_files_leaves_earlier_files(folder, tmp_path):
    check_full_disk(folder, tmp_path, lambda: None, small_files)


def check_full_disk(folder, place, fill, limited):
    model, out = place / "m.dokl", place / "p.csv"
    before = (folder / "y.dokl").read_bytes()
    model.write_bytes(before)
    out.write_text("precious\n")
    fill()
    names = sorted(path.name for path in place.iterdir())
    with limited():
        said = fails("train", folder / "r.csv", "--model", model, "--continue", "--quiet")
        assert said.startswith(f"{model}: the disk is full")
        said = fails("predict", folder / "y.dokl", folder / "r.csv", "--out", out)
        assert said.startswith(f"{out}: the disk is full")
    assert model.read_bytes() == before
    assert out.read_text() == "precious\n"
    assert sorted(path.name for path in place.iterdir()) == names


# -- a terminal and a shell --------------------------------------------------------------------
def on_a_terminal(*arguments, env=None):
    """What a command writes to a terminal, colours and all."""
    ours, theirs = pty.openpty()
    words = [*COMMAND, *map(str, arguments)]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        text += piece
    os.close(ours)
    assert process.wait(300) == 0, text
    return text.decode()


def test_a_terminal_shows_progress_speed_and_error(tmp_path):
    data = write_csv(tmp_path / "r.csv", readings(3000))
    start = ("train", data, "--target", "y", "--drop", "label", *INPUTS, "--chunk", "100")
    text = on_a_terminal(*start, "--model", tmp_path / "m.dokl")
    assert "training" in text
    assert "100%" in text
    assert "3,000 rows" in text
    assert "mse" in text
    assert "/s" in text
    assert "\x1b[35m" in text  # colour


def test_a_terminal_shows_what_takes_long(tmp_path):
    data = write_csv(tmp_path / "r.csv", readings(300))
    start = ("train", data, "--target", "y", "--drop", "label", "--drop", "id")
    start = (*start, "--components", "40", "--model", tmp_path / "m.dokl")
    text = on_a_terminal(*start, env={"NO_COLOR": "1"})
    assert "\x1b[3" not in text
    assert "learning length scales at row 30" in text
    assert "300 rows" in text
    assert "100%" in text


def test_bash_completes_commands_and_options(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    script = dokl("completion", "bash").stdout
    command = tmp_path / "dokl"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    asked = f"""{script}
COMP_WORDS=(dokl tr); COMP_CWORD=1
_dokl_completion dokl; echo "${{COMPREPLY[@]}}"; COMPREPLY=()
COMP_WORDS=(dokl train x.csv --stand); COMP_CWORD=3
_dokl_completion dokl; echo "${{COMPREPLY[@]}}"
"""
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", asked], capture_output=True, text=True, env=env, timeout=300)
    assert done.stdout.split() == ["train", "--standardise"], done.stderr
