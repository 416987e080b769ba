# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Numbers of versions, as dpkg and apt's patterns have them."""

from __future__ import annotations

import re


def number(version: str) -> str:
    """The dotted numbers that it begins with: 580.105.08 of 580.105.08-*."""
    found = re.match(r"[0-9.]*[0-9]", version)
    return found[0] if found else ""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", version))


def is_newer(present: str, wanted: str) -> bool:
    """Without their epochs, and compared by as many numbers as are wanted: 29.8.1 is no newer than 29."""
    number_wanted = numbers(number(_upstream(wanted)))
    return numbers(number(_upstream(present)))[: len(number_wanted)] > number_wanted


def fits(present: str, wanted: str) -> bool:
    """Whether a release is the wanted one, by as many numbers as are wanted."""
    number_wanted = numbers(number(_upstream(wanted)))
    return numbers(number(_upstream(present)))[: len(number_wanted)] == number_wanted


def any_revision(version: str) -> str:
    """A release without the package's revision stands for each of its revisions."""
    return re.sub(r"^([0-9.]+)$", r"\1-*", version)


def _upstream(version: str) -> str:
    return version.rpartition(":")[2]
