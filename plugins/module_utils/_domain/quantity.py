# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from decimal import Decimal

_SUFFIX = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
}  # fmt: skip


def parse_quantity(text: str) -> float:
    """The number that a Kubernetes quantity such as ``19600m`` stands for.

    Raises: ValueError if `text` is no quantity.
    """
    number = text.rstrip("numkKMGTi")
    suffix = text[len(number) :]
    if suffix not in _SUFFIX:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    try:
        return float(Decimal(number) * _SUFFIX[suffix])
    except ArithmeticError as err:
        raise ValueError(f"{text!r} is not a Kubernetes quantity") from err


def format_quantity(value: float) -> str:
    """`value` as the API server would print it, to a thousandth."""
    milli = round(value * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)
