# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Version numbers in dpkg's and apt's formats."""

from __future__ import annotations

import re


def number(version: str) -> str:
    """The leading dotted numbers: 580.105.08 of 580.105.08-*."""
    found = re.match(r"[0-9.]*[0-9]", version)
    return found[0] if found else ""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", version))


def is_newer(present: str, wanted: str) -> bool:
    """Compared without epochs, by the numbers in the wanted version: 29.8.1 is not newer than 29."""
    number_wanted = numbers(number(_upstream(wanted)))
    return numbers(number(_upstream(present)))[: len(number_wanted)] > number_wanted


def fits(present: str, wanted: str) -> bool:
    """Whether a release is the wanted one, by as many numbers as are wanted."""
    number_wanted = numbers(number(_upstream(wanted)))
    return numbers(number(_upstream(present)))[: len(number_wanted)] == number_wanted


def any_revision(version: str) -> str:
    """A release without the package's revision matches each of its revisions."""
    return re.sub(r"^([0-9.]+)$", r"\1-*", version)


def _upstream(version: str) -> str:
    return version.rpartition(":")[2]
