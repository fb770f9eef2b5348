"""Tables from outside, a chunk at a time: CSV, JSON, LIBSVM, Parquet, spreadsheets.

A file, plain, gzip or a zip archive of one file, or stdin; only one chunk is in memory.

>>> import pathlib, tempfile
>>> path = pathlib.Path(tempfile.mkdtemp()) / "readings.csv"
>>> _ = path.write_text("temp,place,y\\n20.5,roof,1\\n,cellar,0\\n")
>>> with open_table(path) as reader:
...     for chunk in reader:
...         print(chunk.n, chunk.columns["temp"], chunk.columns["place"])
2 [20.5  nan] ['roof' 'cellar']

**Columns** hold numbers, times or text, as the first chunk says: what at least half of the cells
that are not missing are (a wrong cell among them is then an error with its place), otherwise text.
Numbers may have decimal commas, separators of thousands, a currency or a percent sign (see
`dokl.learning.cells.forms`), times are ISO 8601 or as people write them
(`dokl.learning.cells.times`), and come as seconds since 1970. What can be read in two ways is
refused. To correct a guess: `Options(text=..., numeric=..., decimal=..., dates=...)`.
The guesses are in `guesses` of the first chunk.

**Missing** is an empty cell, or NA, N/A, n/a, #N/A, NaN, nan, null, NULL, None, ?, - (and a key
that a JSON object does not have): NaN among numbers, None among texts. Blanks around a cell do not
count. `Options(missing=...)` has other spellings.

**Formats**: a name that ends in .csv .tsv .json .jsonl .ndjson .libsvm .svm .svmlight .parquet .pq
.xlsx (then .gz, if packed) says which; otherwise the first line does. JSON is one object a line, or
one array of objects.
"""

from __future__ import annotations

from dokl.learning.cells.cells import MISSING
from dokl.learning.cells.forms import Form
from dokl.tables.readers.reader import FORMATS, Reader, open_table
from dokl.tables.readers.table import Chunk, NoColumn, Options

__all__ = ["FORMATS", "MISSING", "Chunk", "Form", "NoColumn", "Options", "Reader", "open_table"]
