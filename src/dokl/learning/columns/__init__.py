"""Named columns into inputs X: standardisation, categories, missing values.

A `Preprocessor` is planned on the first rows, goes along with the stream, and is saved with the
model. Its size never grows.

- A column of **numbers** is standardised: minus its mean, divided by its standard deviation.
  "running": row t is scaled by the rows up to and including t, so the first row gives zeros, and
  the result does not depend on how the stream was cut into chunks, to the last bit. "fixed": the
  mean and deviation of a sample, agreed once; what a network needs. "off": numbers as they are.
  A column without spread gives 0.
- A **missing** number stands at the mean of its column: 0, or the mean itself with "off", before
  there is one the first value among the first rows. Nothing
  else marks that it was missing.
- A column of **text** becomes one input of 0 or 1 for each level, "place=roof". The levels are
  those of the first rows, at most `max_levels`, the most frequent ones. A missing text, and a level
  that came up later, give zeros; the latter are counted in `unseen`.
- A column of text whose levels are many is a **group**: one input, the last, with the number of the
  level, in the order in which levels came. It is no quantity: `AutoRegressor(groups=-1)` gives each
  number a place of its own. Levels that come up later get numbers, too.
- A column of **times** (seconds) becomes the time of day, of the week and of the year, each as
  cosine and sine of a circle. What does not vary in the first rows is left out, and so are circles
  that they do not cover twice.

>>> import numpy as np
>>> first = {"temp": np.array([20.0, 22.0]), "place": np.array(["roof", "cellar"], object)}
>>> prepared = Preprocessor.plan(first)
>>> prepared.names_out
('temp', 'place=cellar', 'place=roof')
>>> print(prepared.learn_transform(first))
[[0. 0. 1.]
 [1. 1. 0.]]
"""

from __future__ import annotations

from dokl.learning.columns.lags import LagColumns, LagPlan, moment
from dokl.learning.columns.past import GroupRows, RecentRows
from dokl.learning.columns.preprocessor import (
    MAX_LEVELS,
    MODES,
    MOST_GROUPS,
    NO_LEVEL,
    Moments,
    Preprocessor,
    Scale,
    is_text,
    require,
)
from dokl.learning.columns.raw_rows import RawRows
from dokl.learning.columns.roles import (
    FEWEST_OF_A_CLASS,
    MOST_CLASSES,
    are_classes,
    check_some_left,
    class_target,
    group_among,
    guessed_task,
    like_identifiers,
    numeric_target,
    unused_texts,
    unused_words,
)
from dokl.learning.columns.spans import Span
from dokl.learning.columns.times import TimeParts

__all__ = [
    "FEWEST_OF_A_CLASS",
    "GroupRows",
    "LagColumns",
    "LagPlan",
    "MAX_LEVELS",
    "MODES",
    "MOST_CLASSES",
    "MOST_GROUPS",
    "Moments",
    "NO_LEVEL",
    "Preprocessor",
    "RawRows",
    "RecentRows",
    "Scale",
    "Span",
    "TimeParts",
    "are_classes",
    "check_some_left",
    "class_target",
    "group_among",
    "guessed_task",
    "is_text",
    "like_identifiers",
    "moment",
    "numeric_target",
    "require",
    "unused_texts",
    "unused_words",
]
