"""Write docs/cli.md from what `--help` says of every command."""

from __future__ import annotations

import copy
from pathlib import Path

import click

from dokl.cli import commands

PAGE = Path(__file__).parents[1] / "cli.md"
WIDTH = 88
HEAD = """\
<!-- Written by docs/tools/cli_page.py from --help: change that, then run make docs. -->
# Command line

This is the output of `dokl COMMAND --help`. Exit codes: 0 done; 1 bad input, with one line on
stderr; 2 wrong command line; 130 interrupted; 143 terminated.
Results go to stdout, progress and remarks to stderr.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join([_section("dokl", commands), *_below(commands, "dokl")])


def _below(group: click.Group, path: str) -> list[str]:
    parts = []
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        parts.append(_section(f"{path} {name}", command))
        if isinstance(command, click.Group):
            parts += _below(command, f"{path} {name}")
    return parts


def _section(path: str, command: click.Command) -> str:
    names = ["-h", "--help"]
    command = copy.copy(command)
    command._help_option = None  # click caches the first one
    context = click.Context(command, info_name=path, terminal_width=WIDTH, help_option_names=names)
    lines = command.get_help(context).splitlines()
    text = "\n".join(line.rstrip() for line in lines)
    return f"\n## {path}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
