"""`python -m lab.load.recording LOG SVG`: a run of `make demo` as a picture of the terminal.

    make demo 2>&1 | tee build/demo.log
    .venv/bin/python -m lab.load.recording build/demo.log docs/demo.svg

The picture shows what is left out. Nothing else is changed.
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 118
# rich's template without external fonts, so that a page without internet access looks the same.
PICTURE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
{styles}
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
COLOURS = {
    r"^\[\d/\d\] .*": "bold bright_white",
    r"^\$ .*": "bold bright_white",
    r"^….*": "dim",
    r"step up|step down": "cyan",
    r"replicas \d+/\d+": "bold",
    r"^ +changed: .*": "yellow",
    r"^ +ok: .*": "green",
}


def shown(log: str) -> list[str]:
    """The first screen, the playbook `site`, and the last load step with its table."""
    begin, *steps = re.split(r"\n(?=\[\d/\d\] .*: .*[a-z])", log)
    left_out = [f"… {step.count(chr(10)) + 1} lines: {step.partition(chr(10))[0]}" for step in steps]
    [_, site, *_, last] = steps
    return [
        "$ make demo",
        *begin.strip().splitlines(),
        "",
        left_out[0],
        "",
        *site.strip().splitlines(),
        "",
        *left_out[2:-1],
        "",
        *last.strip().splitlines(),
    ]


def picture(lines: list[str], title: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    for line in lines:
        text = Text(line.rstrip(), no_wrap=True, overflow="crop")
        for pattern, style in COLOURS.items():
            text.highlight_regex(pattern, style)
        console.print(text)
    return console.export_svg(title=title, code_format=PICTURE, unique_id="demo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="what `make demo` printed")
    parser.add_argument("svg", type=Path)
    arguments = parser.parse_args()
    log = re.sub(r"\x1b\[[0-9;]*m", "", arguments.log.read_text())
    arguments.svg.write_text(picture(shown(log), "make demo"))


if __name__ == "__main__":
    main()
