"""Tables from outside, a chunk at a time: CSV, JSON lines, LIBSVM, Parquet.

A file, plain or gzip, or stdin; only one chunk is in memory.

>>> import pathlib, tempfile
>>> path = pathlib.Path(tempfile.mkdtemp()) / "readings.csv"
>>> _ = path.write_text("temp,place,y\\n20.5,roof,1\\n,cellar,0\\n")
>>> with open_table(path) as reader:
...     for chunk in reader:
...         print(chunk.n, chunk.columns["temp"], chunk.columns["place"])
2 [20.5  nan] ['roof' 'cellar']

**Columns** hold numbers or text, as the first chunk says: numbers, if at least half of the cells
that are not missing are finite numbers (a wrong cell among them is then an error with its place),
otherwise text. Whoever knows better says so: `Options(text=..., numeric=...)`.

**Missing** is an empty cell, or NA, NaN, nan, null, None, ? (and a key that a JSON object does not
have): NaN among numbers, None among texts. Blanks around a cell do not count.

**Formats**: a name that ends in .csv .tsv .jsonl .ndjson .libsvm .svm .svmlight .parquet .pq
(then .gz, if packed) says which; otherwise the first line does.
"""

from __future__ import annotations

from dokl.readers.options import Options
from dokl.readers.reader import FORMATS, Reader, open_table
from dokl.readers.table import MISSING, Chunk, NoColumn

__all__ = ["FORMATS", "MISSING", "Chunk", "NoColumn", "Options", "Reader", "open_table"]
