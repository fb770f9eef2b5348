"""Where rows come from: a file or stdin, how to read it, and which columns are wanted."""

from __future__ import annotations

from dataclasses import dataclass

from dokl.errors import BadInput
from dokl.readers import NoColumn, Reader, open_table


@dataclass(frozen=True)
class Wanted:
    """The columns that a model knows, and what they hold; all others are passed over.

    n_features: of a model that learned from LIBSVM rows, which have no names. trained: those of the
    columns that were there in training.
    """

    columns: tuple[str, ...] | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    n_features: int | None = None
    trained: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A file to read, "-" for stdin, and how; see `dokl.readers.open_table`."""

    path: str
    format: str | None = None
    n_features: int | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    header: bool | None = None
    delimiter: str | None = None
    zero_based: bool = False
    chunk: int | None = None

    def open(self, wanted: Wanted | None = None, live: bool = False) -> Reader:
        """Open it; only one chunk will be in memory. live: do not wait for a full chunk."""
        told = Wanted(None, self.text, self.numeric, self.n_features) if wanted is None else wanted
        try:
            return open_table(
                self.path,
                self.format,
                n_features=told.n_features,
                chunk=self.chunk,
                columns=told.columns,
                drop=self.drop if wanted is None else (),
                text_columns=told.text,
                numeric_columns=told.numeric,
                header=self.header,
                delimiter=self.delimiter,
                zero_based=self.zero_based,
                live=live,
            )
        except NoColumn as error:
            if error.column not in told.trained:
                raise
            known = listed(told.trained)
            raise BadInput(f"{error}. The model was trained with columns {known}") from None


def listed(values: object, most: int = 12) -> str:
    """Some names for people, and how many more there are.

    >>> listed("abc", 2)
    'a, b and 1 more'
    """
    every = [str(value) for value in values]  # type: ignore[attr-defined]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
