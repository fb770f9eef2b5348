"""A model on a microcontroller: C99 that predicts and learns, without allocating anything.

A gradient model is written as C, compiled, and run beside a copy that does not learn, while the
sensor's offset changes. Models without settings predict in C (`dokl export --centres 100`) and do
not learn there.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from figure import BLUE, RED, frame, save

from dokl import KernelRegressor
from dokl.tables.export.c_source import write_c

PROGRAM = """#include <stdio.h>
#include "board.h"

static board_state learner;

int main(void)
{
    board_row row;
    float y;
    learner = board_learned;
    while (scanf("%lf %lf %f", &row.x[0], &row.x[1], &y) == 3) {
        printf("%.5f %.5f\\n", (double)board_predict(&board_learned, &row),
               (double)board_predict(&learner, &row));
        board_learn(&learner, &row, y);
    }
    return 0;
}
"""


def readings(rows, offset, seed):
    """Two inputs, and what is measured."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 2))
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + offset + 0.05 * rng.normal(size=rows)


def on_board(model, X, y):
    """What a compiled program predicts for each row: frozen, and before it learns the row."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("this example needs a C compiler: cc, gcc or clang")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_c(model, folder / "board.c", precision="float")
        (folder / "main.c").write_text(PROGRAM)
        flags = ["-std=c99", "-Os", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, *flags, "-c", "board.c"], cwd=folder, check=True)
        subprocess.run([compiler, *flags, "main.c", "board.o", "-o", "board", "-lm"], cwd=folder,
                       check=True)  # fmt: skip
        size = (folder / "board.o").stat().st_size
        given = "".join(f"{a:.7g} {b:.7g} {t:.7g}\n" for (a, b), t in zip(X, y, strict=True))
        done = subprocess.run([folder / "board"], input=given, capture_output=True, text=True,
                              check=True)  # fmt: skip
    return np.array(done.stdout.split(), float).reshape(-1, 2).T, size


def main(picture="board.png"):
    """Run it, draw it, and return what was found."""
    model = KernelRegressor(n_components=60, random_state=0).partial_fit(*readings(2000, 0.0, 0))
    X, y = readings(600, 0.0, 1)
    y[200:] += 0.8  # somebody moved the sensor
    (frozen, learning), size = on_board(model, X, y)
    figure, axes = frame("a board whose sensor is moved at row 200", "row", "error (mean of 20)")
    found = {"bytes": size}
    for name, predicted, colour in (("learns", learning, BLUE), ("frozen", frozen, RED)):
        off = np.abs(predicted - y)
        axes.plot(np.arange(19, 600), np.convolve(off, np.ones(20) / 20, "valid"), color=colour,
                  label=f"{name}, in C")  # fmt: skip
        found[name] = float(off[300:].mean())
    ours = model.prequential(X, y)
    found["apart"] = float(np.abs(ours - learning).max())
    save(figure, picture)
    print(f"{size:,} bytes compiled; mean error after the move: {found['learns']:.2f} learning, "
          f"{found['frozen']:.2f} frozen")  # fmt: skip
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
