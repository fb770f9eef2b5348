"""Unlearning a customer: a model without the rows of one who asks, to the last bit.

What least squares learns are sums over rows. Kept by customer, the sums of one can be taken out,
and what is left is the model of all others: the same bits as if that customer had never been. The
rows themselves are not kept.
"""

import sys

import numpy as np
from figure import BLUE, GREY, RED, frame, save

from dokl import Features, Gaussian
from dokl.learning.squares import sums
from dokl.network.sums.origins import Entry, merge, total

CUSTOMERS, ROWS, RIDGE = 12, 40, 0.1


def readings(seed=0):
    """(hours, use) of every customer; the last one uses power at night."""
    rng = np.random.default_rng(seed)
    found = {}
    for k in range(CUSTOMERS):
        last = k == CUSTOMERS - 1
        hour = rng.uniform(0, 9 if last else 24, (ROWS, 1))
        use = 1 + np.exp(-((hour - 19) ** 2) / 8) + 0.1 * rng.normal(size=hour.shape)
        if last:
            use += 3 * np.exp(-((hour - 3) ** 2) / 4)
        found[f"customer {k + 1}"] = hour, use
    return found


def main(picture="unlearn.png"):
    """Run it, draw it, and return what was found."""
    features = Features(Gaussian(2.0), 1, 60, "paired").draw(0)

    def entry(name, hour, use):
        learned = sums.add(sums.no_rows(features.D, 1), features.transform(hour), use)
        return Entry(name, 0, learned)

    def model(account):
        return sums.solve(total(account), RIDGE).theta[0]

    rows = readings()
    whole = merge({}, [entry(name, *each) for name, each in rows.items()])
    gone = f"customer {CUSTOMERS}"
    # A newer entry of no rows takes the place of the customer's.
    without = merge(whole, [Entry(gone, 1, sums.no_rows(features.D, 1))])
    never = merge({}, [entry(name, *each) for name, each in rows.items() if name != gone])
    same = bool((model(without) == model(never)).all())
    across = np.linspace(0, 24, 200)[:, None]
    curves = {name: features.transform(across) @ model(account)
              for name, account in (("all", whole), ("without", without))}  # fmt: skip
    figure, axes = frame(f"{gone} asks to be forgotten", "hour", "use")
    for name, (hour, use) in rows.items():
        colour, label = (RED, gone) if name == gone else (GREY, None)
        axes.plot(hour, use, ".", color=colour, ms=3, label=label)
    axes.plot(across, curves["all"], color=RED, label="all customers")
    axes.plot(across, curves["without"], color=BLUE, label=f"without {gone}")
    save(figure, picture)
    change = float(np.abs(curves["all"] - curves["without"]).max())
    print(f"the model changes by up to {change:.2f}; the same bits as without its rows: {same}")
    return {"same bits": same, "change": change}


if __name__ == "__main__":
    main(*sys.argv[1:2])
