"""A forecast with lags and intervals: the temperature six hours ahead, every hour.

The same on the command line: `dokl train hours.csv --target temp --lag temp=1,18 --horizon 6h`, and
`dokl backtest` tries it from several origins in the past.
"""

import sys
from datetime import datetime, timedelta

import numpy as np
from figure import BLUE, GREY, RED, frame, save

import dokl

AHEAD, HOURS, SHOWN = 6, 700, 96


def hours(seed=0):
    """Hourly rows: a daily course, weather that comes and goes, and noise."""
    rng = np.random.default_rng(seed)
    weather = np.zeros(HOURS)
    for t in range(1, HOURS):
        weather[t] = 0.97 * weather[t - 1] + 0.5 * rng.normal()
    temp = (
        12 + 5 * np.sin(2 * np.pi * np.arange(HOURS) / 24) + weather + 0.2 * rng.normal(size=HOURS)
    )
    start = datetime(2025, 4, 1)
    when = [(start + timedelta(hours=t)).isoformat(sep=" ") for t in range(HOURS)]
    return {"when": when, "temp": temp.round(2)}


def main(picture="forecast.png"):
    """Run it, draw it, and return what was found."""
    table = hours()
    cut = HOURS - SHOWN - AHEAD
    past = {name: values[:cut] for name, values in table.items()}
    model = dokl.fit_table(past, "temp", lags={"temp": [1, 18]}, horizon=AHEAD, time="when",
                           n_components=100, random_state=0)  # fmt: skip
    rows = {name: values[cut : cut + SHOWN] for name, values in table.items()}
    predicted = model.predict(rows)
    lower, upper = model.predict_interval(rows, 0.9, steps_ahead=np.arange(1, SHOWN + 1))
    y = table["temp"][cut + AHEAD : cut + AHEAD + SHOWN]
    before = table["temp"][cut : cut + SHOWN]  # the newest value when a row is predicted
    errors = [float(np.sqrt(np.mean((each - y) ** 2))) for each in (predicted, before)]
    inside = float(np.mean((lower <= y) & (y <= upper)))
    figure, axes = frame(f"the temperature {AHEAD} hours ahead", "hour", "degrees")
    axes.fill_between(range(SHOWN), lower, upper, color=BLUE, alpha=0.2, label="90 % interval")
    axes.plot(predicted, color=BLUE, label="forecast")
    axes.plot(y, ".", color=RED, ms=4, label="measured")
    axes.plot(before, color=GREY, lw=0.8, ls=":", label="as six hours before")
    save(figure, picture)
    print(f"error {errors[0]:.2f}, of the newest value {errors[1]:.2f}; {inside:.0%} in intervals")
    return {"error": errors[0], "newest value": errors[1], "inside": inside}


if __name__ == "__main__":
    main(*sys.argv[1:2])
