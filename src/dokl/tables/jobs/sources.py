"""Where rows come from: a file or stdin, how to read it, and which columns are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dokl.base.errors import BadInput, listed
from dokl.tables.jobs.faults import OnError
from dokl.tables.readers import MISSING, Form, NoColumn, Options, Reader, open_table


@dataclass(frozen=True)
class Wanted:
    """The columns that a model knows, and what they hold; all others are passed over.

    n_features: of a model that learned from LIBSVM rows, which have no names. trained: those of the
    columns that were there in training. chunk: rows at a time, unless somebody said how many.
    compiled: whether rows will be wanted so fast that they are read by compiled code. forms: how
    cells are written that are neither plain numbers nor text; missing: what stands for no value.
    optional: columns of text that are taken if they are there.
    """

    columns: tuple[str, ...] | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    n_features: int | None = None
    trained: tuple[str, ...] = ()
    chunk: int | None = None
    compiled: bool = True
    forms: Mapping[str, Form] = field(default_factory=dict)
    missing: Sequence[str] = MISSING
    optional: tuple[str, ...] = ()

    def instead(self, options: Options) -> Options:
        """The options, for these columns and no others."""
        return replace(
            options,
            columns=self.columns,
            drop=(),
            text=self.text,
            numeric=self.numeric,
            n_features=self.n_features,
            chunk=options.chunk or self.chunk,
            compiled=self.compiled,
            forms=self.forms,
            missing=self.missing,
            optional=self.optional,
        )


@dataclass(frozen=True)
class Source:
    """A file to read, "-" for stdin, and how; on_error: what becomes of rows that are wrong."""

    path: str
    options: Options = field(default_factory=Options)
    on_error: OnError = field(default_factory=OnError)

    def open(
        self, wanted: Wanted | None = None, live: bool = False, target: str | None = None
    ) -> Reader:
        """Open it; only one chunk will be in memory. live: do not wait for a full chunk.

        wanted: what a model knows of columns, instead of what was said of them. target: the column
        that will be predicted, where there is no model yet.
        """
        options = replace(self.options, quantity=target)
        options = options if wanted is None else wanted.instead(options)
        try:
            return open_table(self.path, self.on_error.heard(options), live)
        except NoColumn as error:
            if wanted is None or error.column not in wanted.trained:
                raise
            known = listed(wanted.trained)
            raise BadInput(f"{error}. The model was trained with columns {known}") from None
