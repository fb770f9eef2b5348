"""Run what the pages show: their Python, their `dokl` commands, and the output printed below.

    python docs/tools/pages.py              run the pages that have pictures, into docs/pictures
    python docs/tools/pages.py tour.md      run this one

The tests run them all. A page's blocks share one namespace and one empty folder. A block whose
first line is a comment with a file name (`# mine.py`) is written to that file. A `text` block
directly after a block is what that prints; `...` stands for what differs from run to run.
`<!-- not run: why -->` before a block exempts it.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import scipy.linalg  # noqa: F401  (its BLAS: threads are limited only of what is loaded by then)
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
FENCE = re.compile(
    r"(?P<skip><!-- not run: .+? -->\n+)?^(?P<indent> *)```(?P<language>\w*).*?\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.M | re.S,
)
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, where it begins, and what it should print."""

    language: str
    code: str
    line: int
    expected: str | None = None


def all_pages() -> list[Path]:
    """Every page with something to run, as paths."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if page.exists() and list(blocks(page.read_text("utf-8")))]


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that can be run, in order."""
    fences = [fence for fence in FENCE.finditer(text) if not fence["skip"]]
    for fence, after in itertools.pairwise([*fences, None]):
        if fence is None or fence["language"] not in ("python", "sh"):
            continue
        follows = after is not None and not text[fence.end() : after.start()].strip()
        expected = after["code"] if after and follows and after["language"] == "text" else None
        line = text[: fence.start("code")].count("\n")
        yield Block(fence["language"], _dedent(fence), line, expected)


def _dedent(fence: re.Match[str]) -> str:
    indent = len(fence["indent"])
    return "".join(line[indent:] or "\n" for line in fence["code"].splitlines(keepends=True))


def run(page: Path, folder: Path) -> None:
    """Run a page in an empty folder; raises where something fails or prints something else."""
    module = sys.modules["__page__"] = types.ModuleType("__page__")
    # With more BLAS threads than free cores, small matrices take ten times as long.
    with contextlib.chdir(folder), _importable(folder), threadpool_limits(1):
        for block in blocks(page.read_text("utf-8")):
            python = block.language == "python"
            printed = _python(page, block, vars(module)) if python else _sh(block)
            if block.expected is not None:
                _compare(page, block, printed)


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
                del sys.modules[name]


def _python(page: Path, block: Block, namespace: dict[str, object]) -> str:
    named = re.match(r"# (\w+\.py)\b", block.code)
    if named:
        Path(named[1]).write_text(block.code, "utf-8")
        return ""
    # Empty lines in front, so that a traceback names the line of the page.
    code = compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, namespace)
    return out.getvalue()


def _sh(block: Block) -> str:
    """The lines that begin with dokl, one after another; what they print, errors and all."""
    printed = ""
    for command in re.sub(r"\\\n *", "", block.code).splitlines():
        if command.startswith("dokl "):
            printed += run_command(command)
    return printed


def run_command(command: str) -> str:
    """One line as a shell would run it; what it prints, or RuntimeError."""
    plain = not re.search(r"[|<>$*;&`]", command)
    code, out = _here(command) if plain else _shell(command)
    if code:
        raise RuntimeError(f"{command}\nexit code {code}\n{out}")
    return out


def _here(command: str) -> tuple[int, str]:
    """In this process, which has loaded everything already; comments are cut off."""
    from dokl.cli import main as dokl

    arguments, code = shlex.split(command, comments=True), 0
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        before, sys.argv = sys.argv, arguments
        try:
            dokl()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        finally:
            sys.argv = before
    return code, out.getvalue()


def _shell(command: str) -> tuple[int, str]:
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command], env={**os.environ, "PATH": tools},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def _compare(page: Path, block: Block, printed: str) -> None:
    if not doctest.OutputChecker().check_output(block.expected or "", printed, LOOSE):
        raise AssertionError(
            f"{page.name}, line {block.line + 1}: the page says\n{block.expected}\n"
            f"but this was printed:\n{printed}"
        )


def pictures(page: Path) -> list[str]:
    """Names of the pictures that a page shows."""
    return re.findall(r"\]\((?:\.\./|docs/)?pictures/([\w-]+\.png)\)", page.read_text("utf-8"))


def keep_pictures(page: Path, folder: Path) -> list[str]:
    """Take over the page's pictures that look different from those there; returns their names."""
    import numpy as np
    from matplotlib.image import imread

    taken = []
    for name in pictures(page):
        old, new = PICTURES / name, folder / name
        if not (old.exists() and np.array_equal(imread(old), imread(new))):
            shutil.copy(new, old)
            taken.append(name)
    return taken


def main() -> None:
    """Run the pages named, or all those with pictures."""
    chosen = [ROOT / "docs" / name for name in sys.argv[1:]] or list(filter(pictures, all_pages()))
    for page in chosen:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            run(page, Path(folder))
            taken = keep_pictures(page, Path(folder))
        seconds = time.perf_counter() - began
        print(f"{page.relative_to(ROOT)}: {seconds:.1f} s {' '.join(taken)}", flush=True)


if __name__ == "__main__":
    main()
