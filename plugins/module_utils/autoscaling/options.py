# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads a user's options by type. Each error has the option's path, its value and the next step."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

from ..errors import HopError
from ..hops import Hop

INT32_MAX = 2**31 - 1
# The HPA controller uses thousandths in 64 bits, and multiplies them by numbers of pods.
LARGEST_QUANTITY = 10**12
# Quantities of an HPA have a precision of thousandths.
SMALLEST_QUANTITY = 0.001

_MOST_BITS = 10_000
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SHOWN = 80  # characters of a value that an error repeats
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
# (whether a text is valid, description of a valid one)
Rule = tuple[Callable[[str], bool], str]


class Options:
    """A mapping of options.

    path:    path in the user's options, for example autoscalers[2].scale_up; empty at the top.
    subject: what the options describe; begins each error.
    """

    def __init__(self, given: Any, known: Collection[str], path: str = "", subject: str = "") -> None:
        """Raises: HopError if it is not a mapping, or has an unknown option."""
        self.path, self.subject = path, subject
        if not isinstance(given, Mapping):
            raise _error(subject, f"{path or 'it'} is {shown(given)}, not a mapping", f"set {', '.join(sorted(known))}")
        if unknown := [option for option in given if option not in known]:
            raise self._unknown(unknown[0], known)
        self._given = {option: value for option, value in given.items() if value is not None}

    def _unknown(self, option: Any, known: Collection[str]) -> HopError:
        close = get_close_matches(str(option), known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        place = f"{self.path}: " if self.path else ""
        return _error(
            self.subject, f'{place}unknown option "{_cut(str(option))}"', f"{meant}known: {', '.join(sorted(known))}"
        )

    def __contains__(self, option: str) -> bool:
        return option in self._given

    def __iter__(self) -> Iterator[str]:
        """Options that are set, and not to null."""
        return iter(self._given)

    def named(self, subject: str) -> Options:
        """The same options, with the name of the subject."""
        return Options(self._given, self._given.keys(), self.path, subject)

    def place(self, option: str) -> str:
        return f"{self.path}.{option}" if self.path else option

    def error(self, option: str, seen: str, fix: str) -> HopError:
        return _error(self.subject, f"{self.place(option)} {seen}", fix)

    def raw(self, option: str, default: Any = None) -> Any:
        return self._given.get(option, default)

    def text(self, option: str, default: str = "", rule: Rule | None = None) -> str:
        """A whole number is accepted as text, because templates convert names that consist of digits."""
        given = self._given.get(option, default)
        if not is_text(given):
            raise self.error(option, f"is {shown(given)}, not text", "write it in quotes")
        if isinstance(given, int):
            given = self.whole(option, -INT32_MAX, INT32_MAX)
        text = str(given)
        if rule and text and not rule[0](text):
            raise self.error(option, f"is {shown(text)}", f"set it to {rule[1]}")
        return text

    def choice(self, option: str, choices: Collection[str]) -> str | None:
        if option not in self:
            return None
        given = self._given[option]
        if not isinstance(given, str) or given not in choices:
            raise self.error(option, f"is {shown(given)}", f"set it to {_either(choices)}")
        return given

    def whole(self, option: str, least: int, most: int = INT32_MAX, default: int | None = None) -> int:
        """A whole number, or text of one from a template. Raises: HopError, also if it is missing."""
        given = self._given.get(option, default)
        bounds = f"a whole number from {least} to {most}"
        if given is None:
            raise self.error(option, "is missing", f"set it to {bounds}")
        number = _as_whole(given)
        if number is None or not least <= number <= most:
            raise self.error(option, f"is {shown(given)}", f"set it to {bounds}")
        return number

    def number(self, option: str, least: float, most: float = LARGEST_QUANTITY) -> float | None:
        if option not in self:
            return None
        given = self._given[option]
        number = as_number(given)
        if number is None:
            raise self.error(option, f"is {shown(given)}", "set it to a number")
        if not least <= number <= most:
            raise self.error(option, f"is {shown(given)}", f"set it to a number from {least:g} to {most:g}")
        return number

    def truth(self, option: str) -> bool:
        given = self._given.get(option, False)
        truth = given if isinstance(given, bool) else _TRUTHS.get(str(given).lower())
        if truth is None:
            raise self.error(option, f"is {shown(given)}", "set it to true or false")
        return truth

    def options(self, option: str, known: Collection[str]) -> Options | None:
        if option not in self:
            return None
        return Options(self._given[option], known, self.place(option), self.subject)

    def entries(self, option: str) -> list[tuple[str, Any]]:
        """The entries of a list, each with its path."""
        given = self._given.get(option, [])
        if not isinstance(given, list | tuple):
            raise self.error(option, f"is {shown(given)}, not a list", "write each entry with a leading dash")
        return [(f"{self.place(option)}[{number}]", entry) for number, entry in enumerate(given)]


def check_values(given: Any, path: str, subject: str = "") -> None:
    """Checks numbers and texts of options, at any depth, keys included.

    Raises: HopError with the path of a number that no program prints, or of a text that has no encoding.
    """
    if isinstance(given, Mapping):
        for key, value in given.items():
            check_values(key, f"{path}: the key", subject)
            check_values(value, f"{path}.{key}", subject)
    elif isinstance(given, list | tuple):
        for number, value in enumerate(given):
            check_values(value, f"{path}[{number}]", subject)
    elif isinstance(given, int) and given.bit_length() > _MOST_BITS:
        raise _error(subject, f"{path} is a number of thousands of digits", "write a number that fits into 64 bits")
    elif isinstance(given, str) and _SURROGATE.search(given):
        raise _error(subject, f"{path} is {given!r:.{_SHOWN}}, which is not Unicode", "write the character itself")


def is_text(given: Any) -> bool:
    """Whether a value is text, or a whole number, as which templates give names that consist of digits."""
    return isinstance(given, str | int) and not isinstance(given, bool)


def as_number(given: Any) -> float | None:
    """A finite number, or text of one; None for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    if isinstance(given, str) and not _NUMBER.fullmatch(given.strip()):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _as_whole(given: Any) -> int | None:
    if isinstance(given, str):
        return int(given) if _WHOLE.fullmatch(given.strip()) else None
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    if isinstance(given, float) and not given.is_integer():
        return None
    return int(given)


def shown(value: Any) -> str:
    """A value for an error message."""
    try:
        return _cut(repr(value))
    except ValueError:  # Python does not convert numbers with thousands of digits to text
        return "a number of thousands of digits"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _either(choices: Collection[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _error(subject: str, seen: str, fix: str) -> HopError:
    return HopError(Hop.SPEC, seen=f"{subject}: {seen}" if subject else seen, fix=fix)
