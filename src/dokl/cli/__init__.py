"""The command line: one file per command, each parses, calls a job, and prints.

Exit codes: 0 done; 1 invalid input, with a message of one line; 2 the command line
itself was wrong; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any, NoReturn

import click

from dokl import __version__
from dokl.base.errors import DoklError
from dokl.cli.agent import agent
from dokl.cli.backtest import backtest
from dokl.cli.bench import bench
from dokl.cli.completion import completion
from dokl.cli.demo import demo
from dokl.cli.evaluate import evaluate
from dokl.cli.export import export
from dokl.cli.graph import graph
from dokl.cli.inspect import inspect
from dokl.cli.network import network
from dokl.cli.plan import plan
from dokl.cli.predict import predict
from dokl.cli.reproduce import reproduce
from dokl.cli.run import run
from dokl.cli.serve import serve
from dokl.cli.train import train
from dokl.cli.up import up
from dokl.cli.watch import watch

STDOUT = "stdout"


class Terminated(KeyboardInterrupt):
    """Somebody sent SIGTERM: as Ctrl-C, a command that ends early prints and keeps what it has."""


def terminable(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, in which SIGTERM is raised as `Terminated`, unless somebody else handles it."""

    @functools.wraps(command)
    def run(*args: Any, **how: Any) -> Any:
        alone = threading.current_thread() is threading.main_thread()
        if not alone or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return command(*args, **how)
        signal.signal(signal.SIGTERM, _raise)
        try:
            return command(*args, **how)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return run


def _raise(*_: Any) -> NoReturn:
    raise Terminated


class Commands(click.Group):
    """The group of all commands: what went wrong on purpose is one line on stderr."""

    def main(self, *args: Any, **how: Any) -> Any:
        """Run a command and exit with a code that means something."""
        how["standalone_mode"] = False
        try:
            with redirect_stdout(_Stdout(sys.stdout)):
                code = super().main(*args, **how)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except DoklError as error:
            _fail(f"{error} ({'; '.join(error.options)})" if error.options else str(error), 1)
        except (click.Abort, KeyboardInterrupt) as error:
            by_signal = isinstance(error.__cause__, Terminated)  # click raises Abort from it
            _fail(*(("terminated", 143) if by_signal else ("interrupted", 130)))
        except MemoryError:
            _fail("there is not enough memory for this", 1)
        except OSError as error:
            if error.filename == STDOUT:
                _close_stdout()
            what = error.strerror or str(error) or type(error).__name__
            _fail(f"{error.filename}: {what}" if error.filename else what, 1)
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one meets them."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a reader of its output may close the pipe."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _close_stdout()
            return 0


class _Stdout:
    """A stdout whose errors say that they are its own: by themselves they name no file."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> Any:
        """Write, or raise an error with a name."""
        return self._named(self._file.write, text)

    def flush(self) -> None:
        """Flush, or raise an error with a name."""
        self._named(self._file.flush)

    def _named(self, do: Callable[..., Any], *args: Any) -> Any:
        try:
            return do(*args)
        except OSError as error:
            error.filename = error.filename or STDOUT
            raise


def _close_stdout() -> None:
    """Python would complain once more when it closes a stdout that cannot be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    click.echo(f"dokl: {message}", err=True)
    sys.exit(code)


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="dokl COMMAND --help shows options and examples of a command.",
)
@click.version_option(__version__, prog_name="dokl")
def commands() -> None:
    """Distributed online kernel learning: nodes of a network learn one function together.

    \b
    Exit codes: 0 done, 1 bad input or a full disk, 2 wrong command line, 130 interrupted, 143
    terminated.
    """


for command in (
    demo, train, predict, evaluate, backtest, inspect, export, serve, graph, run, plan, bench,
    reproduce, network, agent, up, watch, completion,
):  # fmt: skip
    commands.add_command(command)
for command in (demo, predict, evaluate, backtest, export, run, plan, bench, reproduce):
    assert command.callback is not None
    command.callback = terminable(command.callback)  # others answer SIGTERM themselves


def main() -> None:
    """Entry point."""
    commands(prog_name="dokl")
