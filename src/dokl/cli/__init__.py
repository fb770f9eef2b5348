"""The command line: one file per command, each parses, calls a job, and prints."""

from __future__ import annotations

import sys

import click

from dokl import __version__
from dokl.cli.demo import demo
from dokl.errors import DoklError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dokl")
def commands() -> None:
    """Distributed online kernel learning: nodes of a network learn one function together."""


commands.add_command(demo)


def main() -> None:
    """Entry point: what went wrong on purpose is one line on stderr and exit code 1."""
    try:
        commands(prog_name="dokl")
    except DoklError as error:
        click.echo(f"dokl: {error}", err=True)
        sys.exit(1)
