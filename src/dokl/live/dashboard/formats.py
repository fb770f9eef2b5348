"""Numbers as people read them, in the terminal."""

from __future__ import annotations

ROUNDING = 1e-12  # |theta_l - theta|^2 / |theta|^2 of vectors that differ in their last bits
NONE = "\N{EN DASH}"


def count(value: float | None) -> str:
    """A whole number, short when it is long.

    >>> count(941), count(12345), count(4.2e6), count(None)
    ('941', '12,345', '4.20 M', '–')
    """
    if value is None:
        return NONE
    return f"{value:,.0f}" if value < 1e6 else _scaled(value, ("", "k", "M", "G", "T"), 1000.0)


def rate(value: float | None) -> str:
    """Per second, three digits.

    >>> rate(0.0), rate(3.14159), rate(512.3), rate(12345.6)
    ('0', '3.14', '512', '12,346')
    """
    if value is None:
        return NONE
    return count(value) if value >= 100 or value == 0 else f"{value:.3g}"


def amount(value: float | None) -> str:
    """Bytes.

    >>> amount(0.0), amount(950.0), amount(12345.0), amount(7.5e6)
    ('0 B', '950 B', '12.3 kB', '7.50 MB')
    """
    if value is None:
        return NONE
    return (
        f"{value:.0f} B" if value < 1000 else _scaled(value, ("", "k", "M", "G", "T"), 1000.0) + "B"
    )


def error(value: float | None, kind: str) -> str:
    """A mean square error, or a rate of mistakes.

    >>> error(0.01234, "mse"), error(3.2e-7, "mse"), error(0.125, "mistakes")
    ('0.0123', '3.20e-07', '12.5%')
    """
    if value is None:
        return NONE
    return f"{100 * value:.1f}%" if kind == "mistakes" else figure(value)


def figure(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return NONE
    return f"{value:.3g}" if value == 0 or 1e-4 <= value < 1e5 else f"{value:.2e}"


def signed(value: float) -> str:
    """Four digits, of a number that may be negative.

    >>> signed(-0.123456), signed(12345.6), signed(0.0)
    ('-0.1235', '1.235e+04', '0')
    """
    return f"{value:.4g}"


def apart(value: float | None) -> str:
    """A disagreement; what is below the rounding of float32 vectors is none.

    >>> apart(0.0123), apart(3e-15), apart(None)
    ('0.0123', 'agrees', '–')
    """
    return "agrees" if value is not None and value < ROUNDING else figure(value)


def age(value: float | None) -> str:
    """A span of time.

    >>> age(0.04), age(3.21), age(75.0), age(7300.0), age(2e5)
    ('0.04 s', '3.2 s', '75 s', '122 min', '56 h')
    """
    if value is None:
        return NONE
    if value < 120:
        return (
            f"{value:.2f} s" if value < 1 else f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
        )
    return f"{value / 60:.0f} min" if value < 3 * 3600 else f"{value / 3600:.0f} h"


def _scaled(value: float, units: tuple[str, ...], step: float) -> str:
    at = 0
    while value >= step and at < len(units) - 1:
        value, at = value / step, at + 1
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {units[at]}"
