# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Quantities of Kubernetes, `500m` and `1Gi`: read and written as the API server does."""

from __future__ import annotations

import re
from decimal import Decimal

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX = {
    **{suffix: Decimal(10) ** power for suffix, power in _DECIMAL.items()},
    **{suffix: Decimal(2) ** power for suffix, power in _BINARY.items()},
}
# Grammar: k8s.io/apimachinery pkg/api/resource/quantity.go. `1E` is an exa, `1E3` a thousand.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>\D*))",
)


def parse_quantity(text: str) -> float:
    """As `exact_quantity`, as a double."""
    return float(exact_quantity(text))


def exact_quantity(text: str) -> Decimal:
    """The number of a Kubernetes quantity such as ``19600m``, ``2Ki`` or ``1e3``.

    Raises: ValueError if `text` is not a quantity.
    """
    found = _QUANTITY.fullmatch(text)
    if not found or (found["suffix"] or "") not in _SUFFIX:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    try:
        number = Decimal(found["number"]) * _SUFFIX[found["suffix"] or ""]
        return number.scaleb(int(found["exponent"] or 0))
    except ArithmeticError as err:
        raise ValueError(f"{text!r} is not a Kubernetes quantity") from err


def format_quantity(value: float) -> str:
    """`value` as the API server would print it, to a thousandth."""
    milli = round(value * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)
