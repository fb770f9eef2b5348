"""A model with what it needs to read files: preprocessing, target, and the rows seen so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadFile, BadInput, FingerprintMismatch, listed
from dokl.estimators.saving import load_with_extra, save
from dokl.features import agreed_fingerprint
from dokl.jobs.scores import Score, restored, whole_label
from dokl.jobs.sources import Wanted
from dokl.preprocess import Preprocessor, class_target, numeric_target
from dokl.readers import Chunk


@dataclass
class Model:
    """An estimator and how columns of a file become its inputs and targets.

    target: name of the target's column, None for LIBSVM files, which have no names and no
    preprocessor. node: the column that says which node of a network a row belongs to. rows: rows
    read so far; skipped: those without a target, or without a node. score: the prequential error
    of all rows so far. remarks: for the user, not saved.
    """

    estimator: Any
    preprocessor: Preprocessor | None = None
    target: str | None = None
    node: str | None = None
    rows: int = 0
    skipped: int = 0
    score: Score | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def classifying(self) -> bool:
        """Whether targets are labels."""
        return bool(getattr(self.estimator, "_classifying", False))

    @property
    def labels(self) -> list[Any] | None:
        """The classes, None in a regression."""
        if not self.classifying:
            return None
        return [whole_label(label) for label in self.estimator.classes_.tolist()]

    @property
    def fingerprint(self) -> str:
        """What vectors of this model may be averaged with; fixed standardisation is part of it."""
        features = str(self.estimator.fingerprint_)
        if self.preprocessor is None or not self.preprocessor.frozen:
            return features
        return agreed_fingerprint(features, preprocessing=self.preprocessor.agreed())

    # -- files -------------------------------------------------------------------------------
    def save(self, path: Path) -> Path:
        """Write everything into one file, whole or not at all."""
        meta: dict[str, Any] = {
            "target": self.target,
            "node": self.node,
            "fingerprint": self.fingerprint,
        }
        # Counts are arrays: as JSON they would grow a digit now and then, and the file with them.
        arrays: dict[str, Array] = {"rows": np.array([self.rows, self.skipped], np.int64)}
        if self.score is not None:
            arrays["score"] = self.score.sums(self.labels or ())
        if self.preprocessor is not None:
            packed, moments = self.preprocessor.spec()
            meta["preprocessing"] = packed
            arrays |= moments
        return save(self.estimator, path, (meta, arrays))

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model file; an estimator saved by `dokl.save` has no preprocessing."""
        estimator, (meta, arrays) = load_with_extra(path)
        if not meta:
            return cls(estimator)
        try:
            return cls._restored(estimator, meta, arrays)
        except FingerprintMismatch as error:
            raise BadFile(f"{path}: {error}") from None
        except (BadInput, KeyError, TypeError, ValueError, IndexError) as error:
            raise BadFile(f"{path}: the file is damaged ({error})") from None

    @classmethod
    def _restored(cls, estimator: Any, meta: Any, arrays: Any) -> Model:
        packed = meta.get("preprocessing")
        prepared = None if packed is None else Preprocessor.from_spec(packed, arrays)
        rows, skipped = (int(count) for count in arrays["rows"])
        model = cls(estimator, prepared, meta["target"], meta["node"], rows, skipped)
        if "score" in arrays:
            model.score = restored(arrays["score"], model.labels)
        if model.fingerprint != meta["fingerprint"]:
            ours, theirs = model.fingerprint, meta["fingerprint"]
            raise FingerprintMismatch("the saved preprocessing", ours, theirs)
        return model

    # -- columns -----------------------------------------------------------------------------
    def wanted(self, *more: str, target: bool, node: bool) -> Wanted:
        """The columns to read: the inputs, `more` (as text), the target, the node."""
        if self.preprocessor is None:
            return Wanted(n_features=getattr(self.estimator, "n_features_in_", None))
        numeric, text = list(self.preprocessor.numeric), list(self.preprocessor.levels)
        if target and self.target is not None:
            (text if self._text_labels else numeric).append(self.target)
        if node and self.node is not None:
            text.append(self.node)
        trained = (*numeric, *text)
        text += [name for name in more if name not in trained]
        return Wanted((*numeric, *text), tuple(text), tuple(numeric), trained=trained)

    @property
    def _text_labels(self) -> bool:
        return self.classifying and self.estimator.classes_.dtype.kind not in "biuf"

    def inputs(self, chunk: Chunk, learn: bool) -> Any:
        """X (n, d) of a chunk: preprocessed columns, or LIBSVM's own rows."""
        if chunk.X is not None:
            return chunk.X
        if self.preprocessor is None:
            return self._plain(chunk)
        change = self.preprocessor.learn_transform if learn else self.preprocessor.transform
        return change(chunk.columns)

    def _plain(self, chunk: Chunk) -> Array:
        """Columns of numbers as they are, for an estimator that was saved by itself."""
        known = getattr(self.estimator, "feature_names_in_", None)
        names = [name for name in chunk.names if name != self.target] if known is None else known
        missing = [name for name in names if name not in chunk.columns]
        if missing:
            raise BadInput(f"there is no column {missing[0]!r}; there are {listed(chunk.names)}")
        if len(names) != self.estimator.n_features_in_:
            raise BadInput(
                f"the model takes {self.estimator.n_features_in_} inputs and there are "
                f"{len(names)} columns: {listed(names)}"
            )
        for name in names:
            column = chunk.columns[name]
            if column.dtype.kind != "f" or np.isnan(column).any():
                raise BadInput(
                    f"column {name!r} has text or missing values, and this model has no "
                    "preprocessing: it was saved in Python"
                )
        return np.column_stack([chunk.columns[name] for name in names])

    def targets(self, chunk: Chunk) -> tuple[Array, Array]:
        """Targets (n,) and which rows have one (and a node, in a network), (n,) of bool."""
        if chunk.y is not None:
            return chunk.y, np.ones(chunk.n, bool)
        if self.target is None or self.target not in chunk.columns:
            known = "--target must be" if self.target is None else f"no {self.target!r} among"
            raise BadInput(f"the target is needed: {known} one of {listed(chunk.names)}")
        pick = class_target if self.classifying else numeric_target
        y, keep = pick(chunk.columns[self.target], self.target)
        if self.node is not None and self.node in chunk.columns:
            keep = keep & np.array([name is not None for name in chunk.columns[self.node]], bool)
        return y, keep

    def notices(self) -> list[str]:
        """What the user may not have meant."""
        prepared = self.preprocessor
        unseen = {} if prepared is None else {k: n for k, n in prepared.unseen.items() if n}
        return self.remarks + [
            f"column {name!r}: {count:,} texts are none of the levels that the first rows had "
            f"({listed(prepared.levels[name], 5) or 'none'}); they count as none of them. "
            f"--levels names all levels at the start"
            for name, count in unseen.items()
            if prepared is not None
        ]
