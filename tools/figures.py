"""Checks the figures of README.md against the files that they come from.

    figures.py

figures.yml binds each figure to a file. A figure is a number, in digits or in words from two on, in any text outside
code. One that is bound to nothing fails, and so does one that its file does not have.
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any

import jmespath
import yaml
from jmespath import functions

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".yml")

WORDS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
IN_WORDS = {word: Decimal(number) for number, word in enumerate(WORDS, start=2)}
ROUNDING = {"nearest": ROUND_HALF_UP, "up": ROUND_CEILING}

# Code, comments and addresses of links. A link's text and a picture's description are read.
_NO_TEXT = re.compile(r"^```.*?^```|<!--.*?-->|`[^`\n]+`|\]\([^)\s]*\)|[!\[\]*]", re.MULTILINE | re.DOTALL)
# A name begins with a letter (H200, p99, x86-64), a figure with a digit (5.3, 1,000, 2.19.14, 5s).
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*(?:-\d\w*)*)|(?P<figure>\d+(?:[.,]\d+)*)")
_SHOWN = rf"(\d+(?:[.,]\d+)*|\b(?:{'|'.join(WORDS)})\b)"


class _Functions(functions.Functions):  # type: ignore[misc]
    @functions.signature({"types": ["array"]})  # type: ignore[untyped-decorator]
    def _func_unique(self, values: list[Any]) -> list[Any]:
        return list(dict.fromkeys(values))


OPTIONS = jmespath.Options(custom_functions=_Functions())


class UnboundError(Exception):
    """A row of the table for which its file has no value."""


@dataclass(frozen=True)
class Figure:
    """A number as a page shows it, and where: offset in the page's text."""

    shown: str
    start: int
    end: int

    def equals(self, value: Any, rounding: str) -> bool:
        """A number is rounded to as many digits as are shown; any other value is compared as text."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return self.shown == str(value)
        return _number(self.shown) == rounded(value, self.shown, rounding)


def rounded(value: float | Decimal, shown: str, rounding: str) -> Decimal:
    digits = Decimal(1).scaleb(-len(shown.partition(".")[2]))
    return Decimal(str(value)).quantize(digits, ROUNDING[rounding])


def _number(shown: str) -> Decimal | None:
    if shown.lower() in IN_WORDS:
        return IN_WORDS[shown.lower()]
    return Decimal(shown.replace(",", "")) if shown.count(".") < 2 else None


def text_of(markdown: str) -> str:
    """As long as the page, with spaces for what is no text."""
    return _NO_TEXT.sub(lambda found: re.sub(r"\S", " ", found[0]), markdown)


def figures(text: str) -> Iterator[Figure]:
    for found in _TOKEN.finditer(text):
        if found["figure"] or found[0].lower() in IN_WORDS:
            yield Figure(found[0], found.start(), found.end())


def problems(page: str, markdown: str, claims: Sequence[Mapping[str, Any]], root: Path = ROOT) -> list[str]:
    """One line for each figure that is bound to nothing or differs from its file, and for each row that fits nothing.

    claims: those of the page in figures.yml.
    """
    text = text_of(markdown)
    found: list[tuple[int, str]] = []
    bound: set[int] = set()

    def report(start: int, what: str) -> None:
        line = 1 + text.count("\n", 0, start)
        found.append((start, f"{page}:{line}: {what}"))

    for claim in claims:
        places = list(re.finditer(_pattern(claim["says"]), text))
        if len(places) != 1:
            report(
                0, f'"{claim["says"]}" is {len(places)} times on the page, not once. Correct its row in {TABLE.name}'
            )
            continue
        [place] = places
        said = " ".join(place[0].split())
        shown = [Figure(place[group], *place.span(group)) for group in range(1, len(place.groups()) + 1)]
        bound |= {figure.start for figure in shown}
        if len(claim["figures"]) != len(shown):
            report(place.start(), f'"{said}" has {len(shown)} figures. Correct its row in {TABLE.name}')
            continue
        for figure, row in zip(shown, claim["figures"], strict=True):
            row = {"file": claim.get("file"), **row}
            try:
                value = _value(row, shown, root)
            except UnboundError as error:
                report(figure.start, f'{figure.shown} in "{said}": {error}. Correct its row in {TABLE.name}')
                continue
            if not figure.equals(value, row.get("round", "nearest")):
                source = "the sum of its row" if "sum" in row else row["file"]
                report(figure.start, f'{figure.shown} in "{said}": {source} has {value}. Correct the page')
    for figure in figures(text):
        if figure.start not in bound:
            around = " ".join(text[max(figure.start - 30, 0) : figure.end + 30].split())
            what = f"is bound to no file. Add a row to {TABLE.name}, or remove the figure"
            report(figure.start, f'{figure.shown} in "{around}" {what}')
    return [problem for _start, problem in sorted(found)]


def _pattern(says: str) -> str:
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in says.split("{}")]
    return _SHOWN.join(parts)


def _value(row: Mapping[str, Any], shown: Sequence[Figure], root: Path) -> Any:
    """Of a row: a sum of rows or of figures of the claim by position from 1, a value by JMESPath, or one by a pattern.

    {1} in an expression is the first figure of the claim.
    """
    if "sum" in row:
        rows = ({"file": row["file"], **part} if isinstance(part, dict) else part for part in row["sum"])
        parts = (
            _number(shown[part - 1].shown) if isinstance(part, int) else _value(part, shown, root) for part in rows
        )
        return sum(Decimal(str(part)) for part in parts)
    path = root / row["file"]
    if not path.is_file():
        raise UnboundError(f"{row['file']} is missing")
    if "find" in row:
        values = set(re.findall(row["find"], _read(path), re.MULTILINE))
        if len(values) != 1:
            raise UnboundError(f"{row['file']} has {len(values)} values for {row['find']}")
        [value] = values
        return Decimal(value) if re.fullmatch(r"\d+(\.\d+)?", value) else value
    expression = re.sub(r"\{(\d+)\}", lambda found: str(_number(shown[int(found[1]) - 1].shown)), row["value"])
    value = jmespath.search(expression, _data(path), OPTIONS)
    if value is None:
        raise UnboundError(f"{row['file']} has no {expression}")
    return value


@cache
def _read(path: Path) -> str:
    """A file's text; of a picture the text in it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".svg":
        return text
    return html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\xa0", " ")


@cache
def _data(path: Path) -> Any:
    return json.loads(_read(path)) if path.suffix == ".json" else yaml.safe_load(_read(path))


def main() -> int:
    table = yaml.safe_load(TABLE.read_text()) or {}
    found = [] if table else [f"{TABLE.name} has no page, so nothing is compared. Restore its rows"]
    for page, claims in table.items():
        without = [f"{page}: has no row, so nothing is compared. Restore its rows in {TABLE.name}"]
        found += problems(page, (ROOT / page).read_text(), claims) if claims else without
    print("\n".join(found) or "figures: all are those of their files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
