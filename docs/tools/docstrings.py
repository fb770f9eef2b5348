"""Docstrings as they are written here, made into Markdown for the API pages.

Examples (`>>>`), tables and aligned columns become fenced blocks, `name : text` a list, and
underlined headings bold lines. The docstrings themselves stay plain text for `help()`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ITEM = re.compile(r"^(\w+(?:, \w+)*) : ", re.M)
COLUMNS = re.compile(r"\S {3,}\S|^=+( =+)+$")


def markdown(text: str) -> str:
    """A docstring as Markdown."""
    text = re.sub(r"^(\w+)\n-{3,}$", r"**\1**\n", text, flags=re.M)
    text = re.sub(r"^(\w+)\n {4}(?=\S)", r"\1 : ", text, flags=re.M)  # a name, below it its text
    return "\n\n".join(map(_paragraph, _paragraphs(text)))


def _paragraphs(text: str) -> list[str]:
    parts = re.split(r"\n(?:[ \t]*\n)+", text.strip("\n"))
    return [part for part in parts if part.strip() != "::"]


def _paragraph(part: str) -> str:
    lines = part.splitlines()
    if ">>>" in part:
        start = next(i for i, line in enumerate(lines) if line.lstrip().startswith(">>>"))
        before = "\n".join(lines[:start])
        return f"{before}\n\n```pycon\n" + "\n".join(lines[start:]) + "\n```"
    if lines[0].startswith("    "):
        return part  # indented: code to Markdown, too
    if sum(bool(COLUMNS.search(line)) for line in lines) >= 2:
        return "```text\n" + part + "\n```"
    part = re.sub(r"(?<=\w_)\*", r"\*", part)  # theta_* is no emphasis
    return ITEM.sub(r"- `\1`: ", part) if ITEM.match(part) else part


class Docstrings(griffe.Extension):
    """Changes every docstring as it is read from source."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_class_members(self, *, cls: Any, **kwargs: Any) -> None:
        """Special methods are no names that anyone looks up, but for calls."""
        for name in [name for name in cls.members if name.startswith("__")]:
            if name not in ("__init__", "__call__"):
                cls.del_member(name)
