"""A model as plain C99: one file to predict with on anything that has a compiler.

Nothing is allocated, nothing is read: all numbers are constants. Raw rows go in, as a struct with a
member for each column: numbers are doubles, NAN where one is missing; of a text, the number of its
level, -1 where it is missing or unknown, which `NAME_COLUMN_level(text)` finds. With a gradient
method of one node the model also learns, row by row, exactly as it would have here: a state holds
what changes. `NAME.c` comes with `NAME.h`; a name that ends in .h gives one header with all in it.

>>> import dokl
>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(300, 2))
>>> model = dokl.KernelRegressor(n_components=20, random_state=0).fit(X, X[:, 0] * X[:, 1])
>>> print(c_source(model, "mine").header.splitlines()[-5])
mine_real mine_predict(const mine_state *state, const mine_row *row);
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dokl.base.errors import BadInput, UnknownName
from dokl.base.files import PathLike, atomic_text
from dokl.tables.export import c_learning, c_outputs, c_parts
from dokl.tables.export.c_learning import Learning, learning_of
from dokl.tables.export.c_parts import KEYWORDS, Reals, remark_of
from dokl.tables.export.formula import Formula, formula_of
from dokl.tables.models import TableModel

PRECISIONS = ("double", "float")

__all__ = ["CSource", "c_source", "write_c"]


@dataclass(frozen=True)
class CSource:
    """The text of a header and of a source; both in `header` where all is to be in one."""

    header: str
    source: str
    learns: bool


@dataclass(frozen=True)
class Writing:
    """What the parts of a source need. name: what all identifiers begin with; one: a single header;
    learning: None where the model does not learn in C.
    """

    name: str
    reals: Reals
    formula: Formula
    learning: Learning | None
    one: bool

    @property
    def state(self) -> str:
        """The argument that holds what was learned, where that can change."""
        return "" if self.learning is None else f"const {self.name}_state *state, "

    @property
    def given(self) -> str:
        """The same where it is handed on."""
        return "" if self.learning is None else "state, "

    @property
    def api(self) -> str:
        """What stands before a function that others call."""
        return "static inline " if self.one else ""

    @property
    def data(self) -> str:
        """What stands before a constant that others look at."""
        return "static const " if self.one else "const "


def write_c(
    model: object,
    path: PathLike,
    *,
    precision: str = "double",
    node: str | None = None,
    level: float = 0.9,
) -> tuple[Path, ...]:
    """Write a fitted model, or estimator, as C99; returns the files, whole or not there at all.

    path: NAME.c, with NAME.h beside it, or NAME.h for one file. precision: "double" or "float".
    node: of a network, whose vector; else what all have learned together, which does not learn.
    level: the share of targets that intervals hold.
    """
    path = Path(path)
    one = path.suffix == ".h"
    made = c_source(model, path.stem, precision=precision, node=node, level=level, one=one)
    if one:
        return (atomic_text(path, made.header),)
    header = path.with_suffix(".h")
    return atomic_text(path, made.source), atomic_text(header, made.header)


def c_source(
    model: object,
    name: str,
    *,
    precision: str = "double",
    node: str | None = None,
    level: float = 0.9,
    one: bool = False,
) -> CSource:
    """The text that `write_c` writes; name: what identifiers begin with."""
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not name or name[0].isdigit() or name in KEYWORDS:
        raise BadInput(f"{name!r} cannot begin the names of C functions: take another file name")
    formula = formula_of(model, node=node, level=level)
    table = model if isinstance(model, TableModel) else TableModel.of(model)
    writing = Writing(name, Reals(precision), formula, learning_of(table, node), one)
    head, body = _header(writing), "\n".join(_body(writing))
    learns = writing.learning is not None
    if one:
        whole = f"{head[0]}#include <math.h>\n#include <string.h>\n\n{head[1]}\n{body}\n#endif\n"
        return CSource(whole, "", learns)
    start = f'#include "{name}.h"\n\n#include <math.h>\n#include <string.h>\n\n'
    return CSource(f"{head[0]}{head[1]}\n{_declared(writing)}\n#endif\n", start + body, learns)


def _header(w: Writing) -> tuple[str, str]:
    """The guard with a few words, and the types."""
    about, guard = w.formula.about, f"{w.name.upper()}_H"
    target = f" of {remark_of(about['target'])}" if "target" in about else ""
    words = f"/* {w.name}: {about['task']}{target}, from a {about['model']} of dokl.\n"
    words += (
        f"   Fingerprint {about['fingerprint']}. C99, link with -lm; nothing is allocated. */\n"
    )
    guards = f"{words}#ifndef {guard}\n#define {guard}\n\n"
    return guards, "\n".join([*c_parts.types(w), *c_learning.types(w)])


def _declared(w: Writing) -> str:
    """What others see of the functions."""
    parts = c_parts.declarations(w), c_outputs.declarations(w), c_learning.declarations(w)
    return "\n".join(line for part in parts for line in part)


def _body(w: Writing) -> list[str]:
    """Constants and functions."""
    scores = [*c_parts.inputs(w), *c_parts.scores(w)]
    return [*scores, *c_outputs.functions(w), *c_learning.functions(w)]
