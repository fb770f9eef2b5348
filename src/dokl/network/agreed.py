"""The map that the nodes of a network agree on, so that the sums of their rows add up.

learned   from a sample of rows: length scales, centres, and a place for every node that the sample
          names (`dokl.learning.experts.places`)
drawn     random features of a kernel, for networks whose rows must not leave their node at all
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dokl.base import codec, files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput
from dokl.learning.experts import bank as banks
from dokl.learning.experts import pilots
from dokl.learning.experts.kinds import Kind, Settings
from dokl.learning.experts.maps import GroupedMap, NestedMap
from dokl.learning.experts.places import GroupPlaces
from dokl.learning.experts.saving import check_map, check_scaling
from dokl.learning.experts.scaling import CLIP, Scaling
from dokl.learning.features import FeatureMap
from dokl.learning.scales import Scales
from dokl.network.sums.checks import Layout, layout_of

KIND = "map"
LEAST_RIDGE = 1e-4
_GAUSSIAN = Kind("learned", "gaussian")


@dataclass(frozen=True)
class LearnedMap:
    """made: of standardised inputs; nodes: whose places it knows, by their numbers; rows: of the
    sample.
    """

    inputs: Scaling
    targets: Scaling
    made: NestedMap | GroupedMap
    nodes: tuple[str, ...] = ()
    rows: int = 0

    @property
    def d(self) -> int:
        """Inputs."""
        return len(self.inputs.centre)

    @property
    def m(self) -> int:
        """Outputs."""
        return len(self.targets.centre)

    @property
    def D(self) -> int:
        """Features."""
        return self.made.D

    @property
    def ridge(self) -> float:
        """The variance of the noise that the sample showed."""
        return max(self.made.scales.noise, LEAST_RIDGE)

    @property
    def places(self) -> GroupPlaces | None:
        """Where nodes lie, if the sample named them."""
        return self.made.places if isinstance(self.made, GroupedMap) else None

    def width(self, centres: int | None) -> int:
        """Features of an expert with at most n centres, which are the first ones."""
        return self.made.width(centres)

    def number(self, name: str) -> int:
        """The number of a node; -1 for one whose place is not known."""
        return self.nodes.index(name) if name in self.nodes else -1

    def transform(self, X: Array, node: int = -1) -> Array:
        """Rows X: (n, d) of a node by its number -> z: (n, D)."""
        rows = self.inputs.clipped(X)
        if isinstance(self.made, GroupedMap):
            rows = np.hstack([rows, np.full((len(rows), 1), float(node))])
        return self.made.transform(rows)

    @property
    def layout(self) -> Layout:
        """What is known of the features of any row: the first is 1, inputs are clipped."""
        s = self.made.scales
        slope = CLIP**2 * float(np.mean(np.broadcast_to(s.linear, self.d) ** 2))
        inside = s.amplitude**2
        if isinstance(self.made, GroupedMap):
            inside += s.offset**2 + (slope if self.made.slopes else 0.0)
        return Layout(constant={0: 1.0}, longest=1.0 + slope + inside)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of every bit; equal for maps whose sums may be added."""
        meta, arrays = codec.encode(self)
        digest = hashlib.sha256(repr(meta).encode())
        for name in sorted(arrays):
            digest.update(np.ascontiguousarray(arrays[name]).astype("<f8").tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class DrawnMap:
    """features: drawn from a seed; ridge: as given. Inputs and targets are as they come."""

    features: FeatureMap
    ridge: float
    m: int
    nodes = ()
    places = None

    @property
    def d(self) -> int:
        """Inputs."""
        return self.features.d

    @property
    def D(self) -> int:
        """Features."""
        return self.features.D

    @cached_property
    def targets(self) -> Scaling:
        """They are left as they are."""
        return Scaling(np.zeros(self.m), np.ones(self.m))

    def width(self, centres: int | None) -> int:
        """Features of an expert with at most n, which are the first ones."""
        return self.D if centres is None else min(self.D, centres)

    def number(self, name: str) -> int:
        """It knows no places."""
        return -1

    def transform(self, X: Array, node: int = -1) -> Array:
        """Rows X: (n, d) of any node -> z: (n, D)."""
        return self.features.transform(X)

    @property
    def layout(self) -> Layout:
        """What is known of the features of any row."""
        return layout_of(self.features)

    @property
    def fingerprint(self) -> str:
        """Of what it was drawn from."""
        return self.features.fingerprint


AgreedMap = LearnedMap | DrawnMap


def learned_map(
    X: Array,
    Y: Array,
    most: int,
    *,
    nodes: Sequence[str] | None = None,
    classes: int = 0,
    seed: int = 0,
) -> LearnedMap:
    """A map with at most `most` centres by rows X: (n, d), Y: (n, m); nodes: the name of each
    row's node, (n,), where that is known; classes: how many there are, 0 where targets are numbers.
    """
    if len(X) < 2:
        raise BadInput(f"a map is learned from at least 2 rows with a target, got {len(X)}")
    names, given = (), X
    if nodes is not None:
        found, number = np.unique(np.asarray(nodes, str), return_inverse=True)
        names, given = tuple(found.tolist()), np.hstack([X, number[:, None].astype(float)])
    settings = Settings(
        (_GAUSSIAN,), most, seed=seed, classes=classes, grouped=nodes is not None, pilots=()
    )
    bank = banks.start(given.shape[1], Y.shape[1], settings)
    now = pilots.run_pilot(bank, given, Y, np.ones(len(X)))
    return LearnedMap(now.inputs, now.targets, now.maps[_GAUSSIAN.features], names, len(X))


# -- files -----------------------------------------------------------------------------------------
def save(made: LearnedMap, path: files.PathLike) -> None:
    """Write a map to a file, whole or not at all."""
    meta, arrays = codec.encode(made)
    files.write(path, KIND, {"map": meta, "fingerprint": made.fingerprint}, arrays)


def load(path: files.PathLike) -> LearnedMap:
    """The map of a file; BadFile where there is none that can be used."""
    meta, arrays = files.read(path, KIND)
    try:
        made = codec.decode(meta["map"], arrays, _RECORDS)
        if not isinstance(made, LearnedMap):
            raise ValueError("it holds no map")
        _check(made)
        if made.fingerprint != meta["fingerprint"]:
            raise ValueError("its fingerprint is that of another map")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadFile(f"{path}: the map is damaged ({error})") from None
    return made


_RECORDS = (LearnedMap, Scaling, NestedMap, GroupedMap, GroupPlaces, Scales)


def _check(made: LearnedMap) -> None:
    """Refuse parts that do not fit together; the types of fields were checked by the codec."""
    check_scaling(made.inputs, made.d)
    check_scaling(made.targets, made.m)
    check_map(made.made, made.d, isinstance(made.made, GroupedMap), 0)
    places: Any = made.places
    if places is not None and places.numbers.tolist() != list(range(len(made.nodes))):
        raise ValueError("its places and its names are of different nodes")
    if places is None and made.nodes:
        raise ValueError("it names nodes and has no places")
