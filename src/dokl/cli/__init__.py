"""The command line: one file per command, each parses, calls a job, and prints.

Exit codes: 0 done; 1 something was wrong with what was given, said in one line; 2 the command line
itself was wrong; 130 interrupted.
"""

from __future__ import annotations

import os
import sys

import click

from dokl import __version__
from dokl.cli.completion import completion
from dokl.cli.demo import demo
from dokl.cli.files import evaluate, inspect, predict, train
from dokl.cli.graph import graph
from dokl.cli.run import run
from dokl.errors import DoklError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dokl")
def commands() -> None:
    """Distributed online kernel learning: nodes of a network learn one function together."""


for command in (demo, train, predict, evaluate, inspect, graph, run, completion):
    commands.add_command(command)


def main() -> None:
    """Entry point: what went wrong on purpose is one line on stderr."""
    try:
        commands(prog_name="dokl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except DoklError as error:
        click.echo(f"dokl: {error}", err=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("dokl: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
