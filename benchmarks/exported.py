"""What exported models take: bytes and microseconds a row, beside the model itself.

    python -m benchmarks.exported

C is compiled with -Os for its size and with -O2 for its time; ONNX runs on one thread, a row at a
time and 10,000 at once.
"""

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import dokl
from dokl.tables.export.c_source import write_c

ROWS = 10_000
MAIN = """#include "m.h"
void predict(const m_row *rows, long n, double *out);
void predict(const m_row *rows, long n, double *out)
{
    long t;
    for (t = 0; t < n; t++)
        out[t] = m_predict(%s&rows[t]);
}
"""
LEARN = """static m_state state;
void learn(const m_row *rows, long n, double *y);
void learn(const m_row *rows, long n, double *y)
{
    long t;
    state = m_learned;
    for (t = 0; t < n; t++)
        m_learn(&state, &rows[t], y[t]);
}
"""


def data(n, d=5, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2]


def seconds(do):
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - began)
    return best


def of_c(model, precision, X, y):
    """(bytes of the object file, us to predict a row, us to learn one or None)."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_c(model, folder / "m.c", precision=precision)
        learns = "m_learn" in (folder / "m.h").read_text()
        main = MAIN % ("&m_learned, " if learns else "") + (LEARN if learns else "")
        (folder / "main.c").write_text(main)

        def cc(*words):
            return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)

        cc("cc", "-Os", "-std=c99", "-c", "m.c", "-o", "m.o")
        size = sum(map(int, cc("size", "m.o").stdout.splitlines()[1].split()[:3]))
        cc("cc", "-O2", "-std=c99", "-shared", "-fPIC", "m.c", "main.c", "-o", "m.so", "-lm")
        code, out = ctypes.CDLL(str(folder / "m.so")), np.empty(len(X))
        given = [array.ctypes.data_as(ctypes.c_void_p) for array in (X, out, y)]
        n = ctypes.c_long(len(X))
        predict = seconds(lambda: code.predict(given[0], n, given[1]))
        learn = seconds(lambda: code.learn(given[0], n, given[2])) if learns else None
    return size, 1e6 * predict / len(X), None if learn is None else 1e6 * learn / len(X)


def of_onnx(model, X, **how):
    """(bytes, us a row one by one, us a row all at once)."""
    import onnxruntime

    from dokl.tables.export.onnx import onnx_model

    made = onnx_model(model, **how).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    given = X.astype(np.float32 if how.get("precision") == "float" else np.float64)
    rows = [given[i : i + 1] for i in range(200)]
    single = seconds(lambda: [session.run(["prediction"], {"X": row}) for row in rows])
    together = seconds(lambda: session.run(["prediction"], {"X": given}))
    return len(made), 1e6 * single / len(rows), 1e6 * together / len(X)


def main():
    X, y = data(ROWS)
    models = {
        "gradient, D = 100": dokl.KernelRegressor(n_components=100, random_state=0).fit(X, y),
        "gradient, D = 500": dokl.KernelRegressor(random_state=0).fit(X, y),
        "experts": dokl.AutoRegressor(random_state=0).fit(X[:5000], y[:5000]),
        "network of 5 nodes": dokl.NetworkRegressor("ring", n_nodes=5, random_state=0).fit(
            X[:5000], y[:5000]
        ),
    }
    for name, model in models.items():
        own = seconds(lambda model=model: model.predict(X))
        single = seconds(lambda model=model: [model.predict(X[i : i + 1]) for i in range(200)])
        print(f"{name}: dokl {1e6 * own / ROWS:.2f} us a row, {1e6 * single / 200:.0f} one by one")
        for precision in ("double", "float"):
            size, predict, learn = of_c(model, precision, X, y)
            more = "" if learn is None else f", learns in {learn:.2f}"
            print(f"  C {precision}: {size:,} bytes, predicts in {predict:.2f} us{more}")
            for std in (True, False) if name == "experts" else (False,):
                show_onnx(f"{precision}{', with std' if std else ''}", model, X,
                          precision=precision, std=std)  # fmt: skip
            if name == "network of 5 nodes":
                show_onnx(f"{precision}, one node", model, X, precision=precision, node="0")


def show_onnx(what, model, X, **how):
    size, one, many = of_onnx(model, X, **how)
    print(f"  ONNX {what}: {size:,} bytes, {many:.2f} us a row, {one:.0f} one by one")


if __name__ == "__main__":
    main()
