import io
import subprocess
import sys
import threading

import pytest

from dokl.base import progress as module
from dokl.base.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch):
    """To be called in the test itself: pytest puts its own stderr back after the fixtures."""
    fake = Terminal()
    monkeypatch.setattr(sys, "stderr", fake)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return fake


def test_shown_on_a_terminal_with_count_speed_and_unit(monkeypatch, capsys):
    terminal = use_terminal(monkeypatch)
    with progress(200, "learning [1]", unit="steps") as bar:
        bar.advance(150)
        bar.advance(50)
    shown = terminal.getvalue()
    assert "learning [1]" in shown  # brackets are no markup
    assert "200/200" in shown
    assert "steps/s" in shown
    assert capsys.readouterr().out == ""


def test_prints_inside_stay_on_stdout(monkeypatch, capsys):
    terminal = use_terminal(monkeypatch)
    with progress(1, "learning"):
        print("a result")
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in terminal.getvalue()


def test_hidden_when_asked_or_when_nobody_looks(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress(10, "hidden", show=False) as bar:
        bar.advance(10)
    assert bar.done == 10
    assert terminal.getvalue() == ""
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with progress(10, "hidden"):
        pass
    monkeypatch.setattr(sys, "stderr", None)
    with progress(10, "hidden"):
        pass
    assert plain.getvalue() == ""


def test_shown_off_a_terminal_when_asked(monkeypatch):
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with progress(10, "forced", show=True) as bar:
        bar.advance(10)
    assert "10/10" in plain.getvalue()


def test_unknown_total(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress(None, "stream") as bar:
        bar.advance(7)
    assert "7/?" in terminal.getvalue()


def test_an_error_passes_through_and_the_last_count_is_drawn(monkeypatch):
    terminal = use_terminal(monkeypatch)

    def learn():
        with progress(10, "failing") as bar:
            bar.advance(3)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        learn()
    assert "3/10" in terminal.getvalue()


def test_threads_lose_no_count(monkeypatch):
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.0)

    def work(bar):
        for _ in range(200):
            bar.advance()

    with progress(4 * 200, "threads") as bar:
        workers = [threading.Thread(target=work, args=(bar,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert bar.done == 800
    assert "800/800" in terminal.getvalue()


def test_rich_is_not_imported_for_nothing():
    code = (
        "import sys; from dokl.base.progress import progress\n"
        "with progress(3, 'x') as bar: bar.advance(3)\n"
        "assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
