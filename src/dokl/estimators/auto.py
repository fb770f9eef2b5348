"""What the estimators without settings share: a bank of experts behind scikit-learn's habits."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, MissingExtra, UnknownName
from dokl.estimators.checked import checked_weight, everywhere, machine_memory, whole
from dokl.estimators.choices import seed_of
from dokl.estimators.frames import check_same_columns
from dokl.estimators.grouped import group_column, grouped_last
from dokl.estimators.late import LateLearning
from dokl.learning.experts import learn
from dokl.learning.experts.bank import Bank, Prediction, fingerprint, matrix_bytes, remembers, start
from dokl.learning.experts.copies import watched
from dokl.learning.experts.kinds import FOR_NUMBERS, Kind, Settings, of_groups


class Auto(LateLearning, BaseEstimator):  # type: ignore[misc]
    """What regressor and classifier share: a bank, checks, and what it can tell."""

    n_components: int
    experts: str
    bound: float
    groups: int | str | None
    random_state: Any
    verbose: bool

    _sets: dict[str, Callable[[], tuple[Kind, ...]]] = FOR_NUMBERS
    _classifying = False

    # -- what subclasses provide -------------------------------------------------------------
    def _targets(self, y: Array) -> Array:
        raise NotImplementedError

    # -- learning ----------------------------------------------------------------------------
    def _settings(self) -> Settings:
        sets = self._sets
        if self.experts not in sets:
            raise UnknownName("experts", self.experts, sets)
        most = whole("n_components", self.n_components)
        if not self.bound > 0:
            raise BadInput(f"bound must be above 0 standard deviations, got {self.bound!r}")
        kinds, lasting = sets[self.experts](), self.experts == "one"
        check_memory(kinds, most)
        seed, grouped = seed_of(self.random_state), self.groups is not None
        made = Settings(kinds, most, float(self.bound), seed, sums=lasting)
        if not grouped:
            return made
        # One expert stays what sums say, so that models can be added and taken away.
        return replace(made, kinds=of_groups(kinds), grouped=True, group_errors=not lasting)

    def _fit(self, X: Array, y: Array, sample_weight: Any) -> Prediction:
        X, Y, weight, _ = self._rows(self._arranged(X), y, sample_weight)
        if not len(X):
            raise BadInput("all sample weights are zero: there is nothing to start from")
        bank, told = learn.fitted(self._settings(), X, Y, weight)
        self.bank_: Bank = bank
        return told

    def _partial_fit(self, X: Array, y: Array, sample_weight: Any) -> Prediction:
        """Learn once; what was said of each row before, NaN for rows of weight 0."""
        X, Y, weight, kept = self._rows(self._arranged(X), y, sample_weight)
        if not hasattr(self, "bank_"):
            bank = start(X.shape[1], Y.shape[1], self._settings())
            watching = not (self._classifying or bank.settings.grouped)
            self.bank_ = watched(bank) if watching else bank
        self.bank_, told = learn.learn(self.bank_, X, Y, weight)
        return Prediction(*(everywhere(part, kept, len(y)) for part in vars(told).values()))

    def _rows(
        self, X: Array, y: Array, sample_weight: Any
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Rows, targets (n, m) and weights of those that have any, and which ones these are."""
        Y = self._targets(y)
        if sample_weight is None:
            return X, Y, None, None
        weight = checked_weight(sample_weight, len(X))
        kept = np.flatnonzero(weight)
        if len(kept) == len(X):
            return X, Y, np.array(weight), None
        return X[kept], Y[kept], weight[kept], kept

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self, "bank_")
        return self._arranged(self._read_rows(X))

    def _arranged(self, X: Array) -> Array:
        """Rows X: (n, d) as the bank wants them: the number of the group last."""
        if self.groups is None:
            return X
        return grouped_last(X, self._group_column())

    def _group_column(self) -> int:
        """The place of the column of groups among the inputs."""
        known = getattr(self, "preprocessor_", None)
        if known is None or known.numbers_only:
            names = getattr(self, "feature_names_in_", None)
            return group_column(self.groups, self.n_features_in_, names)
        name = self._group_name(known.columns)
        if name not in known.names_out:
            raise BadInput(f"groups={self.groups!r} names a column of times: give numbers or texts")
        return int(known.names_out.index(name))

    def _group_name(self, names: tuple[str, ...]) -> str | None:
        return None if self.groups is None else names[group_column(self.groups, len(names), names)]

    # -- what it can tell --------------------------------------------------------------------
    @property
    def relevance_(self) -> Array:
        """How much the learned function bends along each input, summing to 1: (d,).

        Before the first pilot (30 rows; 8 for classes) every input counts alike.
        """
        check_is_fitted(self, "bank_")
        now = self.bank_.now
        if now is None:
            return np.full(self.bank_.d, 1 / self.bank_.d)
        if now.places is None:
            return now.scales.relevance
        bend = np.insert(1.0 / now.scales.lengths, self._group_column(), now.places.bend)
        return np.asarray(bend / bend.sum())

    @property
    def experts_(self) -> list[dict[str, Any]]:
        """The experts, the heaviest first: what each is, its weight, memory in rows, and error."""
        check_is_fitted(self, "bank_")
        bank = self.bank_
        noise = [float(np.mean(memory.noise)) for memory in bank.memories] or [math.nan] * 99
        rows = [
            {"expert": kind.text, "weight": float(w), "memory": kind.memory, "error": error}
            for kind, w, error in zip(bank.kinds, bank.weights, noise, strict=False)
        ]
        return sorted(rows, key=lambda row: -row["weight"])

    @property
    def remembers_(self) -> str:
        """In words, how far back predictions reach."""
        check_is_fitted(self, "bank_")
        n = remembers(self.bank_)
        everything = n > 0.9 * self.bank_.seen
        return f"remembers {'all ' if everything else 'about '}{n:,.0f} rows"

    @property
    def fingerprint_(self) -> str:
        """Of the map and the scalings; models with the same one can be merged."""
        check_is_fitted(self, "bank_")
        return fingerprint(self.bank_)

    def plot_relevance(self, ax: Any = None) -> Any:
        """A bar for each input: how much the learned function bends along it. Returns the axes."""
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise MissingExtra("a picture", "plot") from None
            ax = plt.subplots()[1]
        order = np.argsort(self.relevance_)
        ax.barh(np.asarray(self.inputs_, str)[order], self.relevance_[order])
        ax.set_xlabel("relevance")
        return ax

    def _repr_html_inner(self) -> str:
        """Scikit-learn's diagram, and below it the experts, once there are any."""
        return str(super()._repr_html_inner()) + experts_html(self)

    def _repr_mimebundle_(self, **how: Any) -> dict[str, Any]:
        """The same for notebooks."""
        found: dict[str, Any] = super()._repr_mimebundle_(**how)
        if "text/html" in found:
            found["text/html"] += experts_html(self)
        return found

    # -- adding and taking away --------------------------------------------------------------
    def freeze(self) -> Any:
        """Learn no more scales: map and scalings stay as they are, and this model itself."""
        check_is_fitted(self, "bank_")
        if self.bank_.now is None:
            raise BadInput(
                f"there is no map yet after {self.bank_.seen} rows: it comes with row "
                f"{min(self.bank_.settings.pilots, default=30)}"
            )
        self.bank_ = learn.frozen(self.bank_)
        return self

    def fresh(self) -> Any:
        """An empty model with the same map and scalings, which stay as they are."""
        from sklearn.base import clone

        other = clone(self)
        learned = {k: v for k, v in vars(self).items() if k not in self.get_params()}
        vars(other).update(learned)
        other.bank_ = learn.emptied(self.freeze().bank_)
        return other

    def without(self, other: Any) -> Any:
        """The model that never had the rows of `other`, which has the same map."""
        return combined(self, other, -1)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the fitted estimator to a data file; `dokl.load` reads it back."""
        from dokl.estimators.saving import save  # which knows all the estimators, this one too

        return save(self, path)


def experts_html(estimator: Any) -> str:
    """The experts as a table of HTML, those that count; nothing before anything was learned."""
    if not hasattr(estimator, "bank_"):
        return ""
    rows = estimator.experts_
    heavy = [row for row in rows if row["weight"] >= 0.005]
    cells = "".join(
        f"<tr><td style='text-align:left'>{html.escape(row['expert'])}</td>"
        f"<td>{100 * row['weight']:.0f} %</td><td>{row['error']:.3g}</td></tr>"
        for row in heavy
    )
    more = f"<p>and {len(rows) - len(heavy)} more</p>" if len(rows) > len(heavy) else ""
    head = (
        "<tr><th style='text-align:left'>expert</th><th>weight</th><th>error / variance</th></tr>"
    )
    title = f"{estimator.bank_.seen:,} rows learned; {html.escape(estimator.remembers_)}"
    return f"<div><p>{title}</p><table>{head}{cells}</table>{more}</div>"


def check_memory(kinds: Any, most: int) -> None:
    """Refuse matrices that this machine cannot hold."""
    need, have = matrix_bytes(kinds, most), machine_memory()
    if need > 0.7 * have:
        raise BadInput(
            f"n_components={most} takes {need / 1e9:,.0f} GB for the experts' matrices, and this "
            f"machine has {have / 1e9:,.0f} GB: take fewer, or experts='one'"
        )


def merge(a: Any, b: Any) -> Any:
    """The model that has learned the rows of both; they must have the same map.

    `b = a.fresh()` makes one with the map of a. Exact for experts='one', whose knowledge is sums.
    """
    return combined(a, b, 1)


def combined(a: Any, b: Any, sign: int) -> Any:
    """A new model with the sums of a, and those of b added or taken away."""
    from sklearn.base import clone

    for model in (a, b):
        if not hasattr(model, "bank_"):
            raise BadInput(
                f"{model!r} cannot be merged: it has learned nothing, or is no AutoRegressor"
            )
    if type(a) is not type(b):
        raise BadInput(f"a {type(a).__name__} and a {type(b).__name__} cannot be merged")
    check_same_columns(a, b)
    other = clone(a)
    vars(other).update({k: v for k, v in vars(a).items() if k not in a.get_params()})
    other.bank_ = learn.combined(a.bank_, b.bank_, sign)
    return other
