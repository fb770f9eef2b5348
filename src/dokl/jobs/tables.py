"""A model with what it needs to read files: preprocessing, target, and the rows seen so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dokl import __version__
from dokl.arrays import Array
from dokl.errors import BadInput
from dokl.estimators.saving import load_with_extra, save
from dokl.preprocess import Preprocessor, class_target, numeric_target
from dokl.readers import Chunk, open_table


@dataclass
class Model:
    """An estimator and how columns of a file become its inputs and targets.

    target: name of the target's column, None for LIBSVM files, which have no names and no
    preprocessor. rows: rows learned so far; skipped: rows without a target.
    """

    estimator: Any
    preprocessor: Preprocessor | None
    target: str | None
    rows: int = 0
    skipped: int = 0
    error: dict[str, float] = field(default_factory=dict)

    @property
    def classifying(self) -> bool:
        """Whether targets are labels."""
        return bool(self.estimator._classifying)

    def save(self, path: Path) -> Path:
        """Write everything into one file, whole or not at all."""
        meta: dict[str, Any] = {"target": self.target, "rows": self.rows, "skipped": self.skipped}
        meta |= {"error": self.error, "dokl": __version__}
        arrays: dict[str, Array] = {}
        if self.preprocessor is not None:
            meta["preprocessing"], arrays = self.preprocessor.spec()
        return save(self.estimator, path, (meta, arrays))

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model file; an estimator saved by `dokl.save` has no preprocessing."""
        estimator, (meta, arrays) = load_with_extra(path)
        packed = meta.get("preprocessing")
        prepared = None if packed is None else Preprocessor.from_spec(packed, arrays)
        counts = int(meta.get("rows", 0)), int(meta.get("skipped", 0))
        return cls(estimator, prepared, meta.get("target"), *counts, dict(meta.get("error", {})))

    def inputs(self, chunk: Chunk, learn: bool) -> Any:
        """X (n, d) of a chunk: preprocessed columns, or LIBSVM's own rows."""
        if chunk.X is not None:
            if self.preprocessor is not None:
                raise BadInput("the model was trained on named columns, this is a LIBSVM file")
            return chunk.X
        if self.preprocessor is None:
            return self._plain(chunk)
        change = self.preprocessor.learn_transform if learn else self.preprocessor.transform
        return change(chunk.columns)

    def _plain(self, chunk: Chunk) -> Array:
        """Columns of numbers as they are, for an estimator that was saved by itself."""
        names = [name for name in chunk.names if name != self.target]
        known = getattr(self.estimator, "feature_names_in_", None)
        if known is not None:
            missing = [name for name in known if name not in names]
            if missing:
                raise BadInput(f"column {missing[0]!r} is missing; the file has {', '.join(names)}")
            names = list(known)
        return np.column_stack([np.asarray(chunk.columns[name], float) for name in names])

    def targets(self, chunk: Chunk) -> tuple[Array, Array]:
        """Targets (n,) and which rows have one, (n,) of bool."""
        if chunk.y is not None:
            return chunk.y, np.ones(chunk.n, bool)
        if self.target is None or self.target not in chunk.columns:
            name = "a target" if self.target is None else f"the target column {self.target!r}"
            raise BadInput(f"{name} is needed and not in the file: {', '.join(chunk.names)}")
        pick = class_target if self.classifying else numeric_target
        return pick(chunk.columns[self.target], self.target)


def whole_table(path: Path, target: str | None) -> tuple[Any, Array]:
    """A file that fits into memory as X and y: numbers standardised over the whole file."""
    with open_table(path) as reader:
        chunks = list(reader)
    if chunks[0].X is not None:
        from scipy.sparse import vstack

        return vstack([c.X for c in chunks]).tocsr(), np.concatenate(
            [c.y for c in chunks if c.y is not None]
        )
    if target is None:
        raise BadInput(f"{path}: name the target column, one of {', '.join(chunks[0].names)}")
    columns = {name: np.concatenate([c.columns[name] for c in chunks]) for name in chunks[0].names}
    prepared = Preprocessor.plan(columns, [target], "fixed")
    y, keep = numeric_target(columns[target], target)
    return prepared.transform(columns)[keep], y[keep]
