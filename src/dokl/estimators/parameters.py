"""Parameters of estimators as a file has them: numbers that no constructor would check.

`fit` checks them when it uses them; a file is refused at once, before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dokl.base.errors import BadInput
from dokl.base.files import MOST, real, whole
from dokl.base.random_numbers import check_seed
from dokl.estimators.checked import float_type
from dokl.estimators.choices import SIGMAS


def check_parameters(params: Mapping[str, Any]) -> None:
    """Refuse numbers that `fit` would refuse; names are left to it."""
    for name, value in params.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value)


def check_components(model: Any, D: int) -> None:
    """Refuse a number of components that is not the one that was fitted, D."""
    if model.n_components not in ("auto", D):
        raise BadInput(
            f"n_components is {model.n_components!r}, and the model was fitted with {D}: set it "
            "back, or fit again"
        )


def _count(name: str, value: Any) -> None:
    if value != "auto":
        whole(name, value, 1, MOST)


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        whole(name, value, 0, 100)  # scikit-learn's verbose may be a number


def _at_least_zero(name: str, value: Any) -> None:
    if not isinstance(value, bool):  # intercept=True
        real(name, value)


def _above_zero(name: str, value: Any) -> None:
    real(name, value, above=True, infinite=True)


def _sigma(name: str, value: Any) -> None:
    several = isinstance(value, list | tuple) and len(value) > 0
    for each in value if several else [value]:
        if each not in SIGMAS:
            real(name, each, above=True)


def _weights(name: str, value: Any) -> None:
    if value not in (None, "balanced"):
        if not isinstance(value, Mapping):
            raise BadInput(f"{name} is {value!r}: weights by label are expected, or 'balanced'")
        for weight in value.values():
            real(name, weight)


def _float(name: str, value: Any) -> None:
    float_type(value)


def _seed(name: str, value: Any) -> None:
    if value is not None:
        check_seed(value)


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("n_components", "n_nodes", "every", "passes"), _count),
    **dict.fromkeys(("shuffle", "verbose"), _flag),
    **dict.fromkeys(("alpha", "intercept"), _at_least_zero),
    "bound": _above_zero,
    "class_weight": _weights,
    "sigma": _sigma,
    "random_state": _seed,
    "dtype": _float,
}
