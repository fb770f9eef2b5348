"""A sensor with drift: a model that goes on learning, beside one that was trained once.

A gas sensor ages: its reading for the same air falls by half in 900 rows, and jumps when it is
cleaned. A reference comes later for every row, so the model can learn from each.
"""

import sys

import numpy as np
from figure import BLUE, RED, frame, save

from dokl import AutoRegressor

ROWS, TRAINED = 900, 300


def readings(seed=0):
    """Raw signal and temperature, and the true concentration."""
    rng = np.random.default_rng(seed)
    gas, temperature = rng.uniform(0, 10, ROWS), rng.normal(20, 5, ROWS)
    age = np.arange(ROWS) / ROWS
    gain = np.where(np.arange(ROWS) < 600, 1 - 0.5 * age, 1.1 - 0.5 * (age - 2 / 3))
    signal = gain * np.sqrt(gas) + 0.02 * temperature + 0.05 * rng.normal(size=ROWS)
    return np.column_stack([signal, temperature]), gas


def main(picture="drift.png"):
    """Run it, draw it, and return what was found."""
    X, y = readings()
    model = AutoRegressor(n_components=100, random_state=0)
    following = model.prequential(X[:TRAINED], y[:TRAINED])
    frozen = model.predict(X[TRAINED:])
    following = np.append(following, model.prequential(X[TRAINED:], y[TRAINED:]))[TRAINED:]
    errors = {"learns every row": following, "trained once": frozen}
    figure, axes = frame("a sensor that ages, cleaned at row 600", "row", "error (mean of 50)")
    found = {}
    for (name, predicted), colour in zip(errors.items(), (BLUE, RED), strict=True):
        off = np.abs(predicted - y[TRAINED:])
        axes.plot(np.arange(TRAINED + 49, ROWS), np.convolve(off, np.ones(50) / 50, "valid"),
                  color=colour, label=name)  # fmt: skip
        found[name] = float(off.mean())
    save(figure, picture)
    print(", ".join(f"{name}: mean error {error:.2f}" for name, error in found.items()))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
