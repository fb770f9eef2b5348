"""What else would predict the same rows: ridge, and LightGBM where it is installed.

Both get the inputs that the model gets (lags, circles of time, texts as 0 and 1), and are fitted to
the same rows. Trees cannot see that midnight follows 23 o'clock, but cut whole hours well: LightGBM
also gets the hour, the day of the week and the day of the year as numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.tables.jobs.rolling_rows import Pairs

DAY = 86_400.0
PEERS = ("ridge", "LightGBM")
Peer = Callable[[Pairs, Array, Array], Array]  # (pairs, those to learn, those to predict)


def peers() -> tuple[dict[str, Peer], dict[str, str]]:
    """Those that are installed, {name: what fits and predicts}; and why others are not there."""
    if find_spec("lightgbm") is None:
        return {"ridge": ridge}, {"LightGBM": "not installed (pip install lightgbm)"}
    return {"ridge": ridge, "LightGBM": lightgbm}, {}


def ridge(pairs: Pairs, learn: Array, predict: Array) -> Array:
    """Linear least squares with a penalty chosen by cross-validation; gaps at the mean."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fill = SimpleImputer(keep_empty_features=True)
    model = make_pipeline(fill, StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
    model.fit(pairs.gaps[pairs.at[learn]], pairs.y[learn])
    return np.asarray(model.predict(pairs.gaps[pairs.at[predict]]), np.float64)


def lightgbm(pairs: Pairs, learn: Array, predict: Array) -> Array:
    """Boosted trees at their defaults, with the calendar as numbers."""
    from lightgbm import LGBMRegressor

    X = pairs.gaps if pairs.times is None else np.hstack([pairs.gaps, calendar(pairs.times)])
    model: Any = LGBMRegressor(random_state=0, verbose=-1)
    model.fit(X[pairs.at[learn]], pairs.y[learn])
    with warnings.catch_warnings():  # it gives arrays names and then misses them
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(model.predict(X[pairs.at[predict]]), np.float64)


def calendar(times: Array) -> Array:
    """The hour, the day of the week and the day of the year of times in seconds: (n, 3).

    >>> calendar(np.array([0.0, 86400.0 * 40 + 7200]))
    array([[ 0.,  3.,  0.],
           [ 2.,  1., 40.]])
    """
    days = (np.floor(times / DAY)).astype("datetime64[D]")
    since = (days - days.astype("datetime64[Y]")).astype(float)
    weekday = (days.astype(int) + 3) % 7  # 1970 began on a Thursday
    return np.column_stack([(times % DAY) / 3600.0, weekday, since])
