"""Models of tables: what predicts raw rows, in Python and by the commands alike."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from commands import dokl, rows_of

GOLDEN = Path(__file__).parent / "golden"
# Written by version 0.1: never write these files again.
#   dokl train table.csv --target ozone --drop label --drop station --text zone --components 40
#        --seed 5 -p intercept=true
#   dokl train table.csv --target label --drop ozone --nodes station --graph ring --components 30
#        --loss logistic
# of 400 rows place,temp,zone,wind,station,ozone,label with cells missing in all but zone and label.
HASHES = {
    "table-v1.dokl": "16db1cb2ae726ac19f12ea2bc766587e0d5c52ec1c0a79b91404281e04ae1b2a",
    "table-network-v1.dokl": "6af8c5967c9d410040b17e5936d6dc035df22a5844ef12690a6cbd383a312337",
}
NEW = "place,temp,zone,wind\nroof,20.5,1,2.5\n,31,0,\nattic,,2,0.3\ncellar,-3.25,9,11\n"
STATIONS = ["a", "b", "c", "a"]
OZONE = [4467.35645, 4738.72949, 4276.40869, 3878.22534]
SCORES = [
    [5.29667044, -7.32176065, -3.0855217],
    [8.77509499, -8.21988297, -2.3559413],
    [0.413103402, -2.26965213, -1.82550967],
    [0.838627219, 0.282325029, -0.51564002],
]


@pytest.mark.parametrize("name", HASHES)
def test_the_golden_files_are_as_they_were(name):
    assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == HASHES[name]


def test_old_files_predict_what_they_did():
    rows = rows_of(dokl("predict", GOLDEN / "table-v1.dokl", "-", input=NEW).stdout)
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], OZONE, rtol=1e-5)
    lines = [
        f"{line},{node}" for line, node in zip(NEW.split(), ["station", *STATIONS], strict=True)
    ]
    arguments = (GOLDEN / "table-network-v1.dokl", "-", "--scores", "--by-node")
    rows = rows_of(dokl("predict", *arguments, input="\n".join(lines) + "\n").stdout)
    found = [[float(row[f"score {label}"]) for label in ("high", "low", "middle")] for row in rows]
    np.testing.assert_allclose(found, SCORES, rtol=1e-4, atol=1e-4)
    assert [row["prediction"] for row in rows] == ["high"] * 4
