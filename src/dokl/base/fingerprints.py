"""Fingerprints: short names for everything that nodes must agree on before they share."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from dokl.base.errors import BadInput


def agreed_fingerprint(features_fingerprint: str, **agreed: object) -> str:
    """The fingerprint of a map together with whatever else nodes must agree on.

    Scaling, labels and the like: anything JSON can write, and arrays, which count as lists.

    >>> a = agreed_fingerprint("00ff", mean=np.array([0.5, 1.0]), labels=["ham", "spam"])
    >>> a == agreed_fingerprint("00ff", labels=["ham", "spam"], mean=[0.5, 1.0])
    True
    >>> a == agreed_fingerprint("00ff", mean=[0.5, 1.0], labels=["spam", "ham"])
    False
    """
    if not agreed:
        return features_fingerprint
    return digest({"features": features_fingerprint, "agreed": agreed})


def digest(content: object) -> str:
    """First 16 hexadecimal digits of the SHA-256 of canonical JSON."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        raise TypeError(f"{type(value).__name__} cannot be part of a fingerprint")

    try:
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=plain
        )
    except (TypeError, ValueError) as error:
        raise BadInput(f"no fingerprint: {error}") from None
    return hashlib.sha256(text.encode()).hexdigest()[:16]
