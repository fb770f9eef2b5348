"""Lines of a source into arrivals: its header, its count, and what to do with bad lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dokl.base.errors import BadInput
from dokl.live.inputs import Arrival, Inputs
from dokl.live.inputs.bodies import BodyTable, from_lines, table
from dokl.live.sources.lines import Line, LineFile
from dokl.tables.readers.text import cells_of, delimiter_of

OnBad = Callable[[str, str], None]
Position = Mapping[str, Any]


def place(position: Position) -> tuple[int, int, Sequence[int]]:
    """Bytes, inode and head of a stored position."""
    try:
        length, crc = position["head"]
        return int(position["bytes"]), int(position["inode"]), (int(length), int(crc))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"the stored position of the source is damaged ({error!r})") from None


class _Wrong(BadInput):
    """A line where a strict reader stops."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@dataclass
class RowReader:
    """Lines into arrivals.

    form: "csv", "jsonl", or None before the first line. header: the line with the names. fresh: a
    new beginning, where a header may stand. line: number of the last line taken.
    """

    source: str
    inputs: Inputs
    strict: bool
    on_bad: OnBad
    form: str | None = None
    header: str = ""
    names: list[str] = field(default_factory=list)
    mark: str = ","
    fresh: bool = True
    line: int = 0
    rows: int = 0
    bad: int = 0

    def arrivals(self, lines: list[Line], file: LineFile | None) -> Iterator[Arrival]:
        """An arrival with all good rows among some lines, if there are any."""
        texts: list[tuple[int, str]] = []
        first, wrong = self.line + 1, None
        try:
            self._sift(lines, texts)
        except _Wrong as error:
            wrong = error
        arrival, worse = self._good(texts)
        wrong = worse or wrong
        left = 0 if wrong is None else sum(line.length for line in lines[wrong.line - first :])
        self.line = self.line if wrong is None else wrong.line - 1
        if arrival is not None:
            self.rows += arrival.rows
            yield replace(arrival, source=self.source, position=self._position(file, left))
        if wrong is not None:
            raise wrong

    def finish(self) -> None:
        """Refuse a source that had nothing at all in it."""
        if self.form is None:
            raise BadInput(f"{self.source} is empty")

    def go_on(self, position: Position) -> None:
        """Know again what was known at a position."""
        try:
            form, header = position["form"], str(position["header"])
            self.rows, self.bad, self.line = (int(position[k]) for k in ("rows", "bad", "line"))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"the stored position of the source is damaged ({error!r})") from None
        self.form, self.fresh = form, False
        if form == "csv":
            self._take_header(header)

    def start_over(self) -> None:
        """Another file, or the same from its beginning."""
        self.fresh, self.line = True, 0

    def skip(self, why: str, line: int | None = None) -> None:
        """Count a bad line, and report it; or raise."""
        line = self.line if line is None else line
        where = f"{self.source}, line {line}"
        if self.strict:
            raise _Wrong(line, f"{where}: {why}")
        self.bad += 1
        self.on_bad(where, why)

    def _position(self, file: LineFile | None, left: int) -> dict[str, Any]:
        """Where to go on, with this many bytes left of what was taken."""
        counts = {"rows": self.rows, "bad": self.bad, "line": self.line}
        if file is None:
            return counts
        at = file.at - left
        known = {"bytes": at, "inode": file.inode, "head": file.head(at)}
        return {**counts, **known, "form": self.form, "header": self.header}

    # -- lines that are rows -------------------------------------------------------------------
    def _sift(self, lines: list[Line], texts: list[tuple[int, str]]) -> None:
        """Number and text of the lines that should be rows."""
        for line in lines:
            self.line += 1
            text = self._text(line)
            if text and not self._is_header(text):
                texts.append((self.line, text))

    def _text(self, line: Line) -> str:
        """A line as text, nothing where there is no row on it."""
        if line.text is None:
            self.skip(f"{line.length:,} bytes on one line are no row")
            return ""
        try:
            text = line.text.decode("utf-8-sig" if self.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            self.skip(f"byte 0x{line.text[error.start]:02x} is not UTF-8 text")
            return ""
        return text.rstrip("\r") if text.strip() else ""

    def _is_header(self, text: str) -> bool:
        """Whether a line names the columns, which the first line of all must do."""
        if text == self.header:
            return True
        fresh, self.fresh = self.fresh, False
        if self.form is None:
            self.form = "jsonl" if text.lstrip().startswith("{") else "csv"
            named = self.form == "csv"
        else:
            named = fresh and self.form == "csv" and self._names_columns(text)
        if named:
            self._take_header(text)
        return named

    def _names_columns(self, text: str) -> bool:
        with suppress(BadInput):
            cells = {cell.strip() for cell in cells_of([text], delimiter_of(text))[0]}
            return cells.issuperset(self.inputs.columns) or cells >= {"id", self.inputs.target}
        return False

    def _take_header(self, text: str) -> None:
        try:
            mark = delimiter_of(text)
            names = [cell.strip() for cell in cells_of([text], mark)[0]]
            self.inputs.check_header(names)
        except BadInput as error:
            raise BadInput(f"{self.source}, header: {error}") from None
        self.header, self.names, self.mark = text, names, mark

    # -- rows that are good --------------------------------------------------------------------
    def _good(self, texts: list[tuple[int, str]]) -> tuple[Arrival | None, _Wrong | None]:
        """An arrival of the texts that are good rows, and where to stop, if anywhere."""
        arrival, why = self._arrival([text for _, text in texts])
        if why is None:
            return arrival, None
        good, wrong = [], None
        for line, text in texts:
            _, why = self._arrival([text])
            if why is None:
                good.append(text)
                continue
            try:
                self.skip(why.removeprefix("row 1: ").removeprefix("row 1, "), line)
            except _Wrong as error:
                wrong = error
                break
        return self._arrival(good)[0], wrong

    def _arrival(self, texts: list[str]) -> tuple[Arrival | None, str | None]:
        """All of these rows, or why not."""
        try:
            return (self.inputs.arrival(self._table(texts)) if texts else None), None
        except BadInput as error:
            return None, str(error)

    def _table(self, texts: list[str]) -> BodyTable:
        if self.form == "jsonl":
            return from_lines(texts, len(texts))
        if any('"' in text for text in texts):  # each line for itself: a quote must not run on
            cells = [row for text in texts for row in cells_of([text], self.mark)]
        else:
            cells = cells_of(texts, self.mark)
        return table(self.names, cells, len(texts))
