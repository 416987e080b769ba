"""What tools/figures.py finds on a page: generated from each figure and each line of README.md."""

from __future__ import annotations

import json
from pathlib import Path

import gates
import pytest
import yaml
from figures import IN_WORDS, ROOT, TABLE, Figure, figures, main, problems, text_of

README = (ROOT / "README.md").read_text()
CLAIMS = yaml.safe_load(TABLE.read_text())["README.md"]
FIGURES = list(figures(text_of(README)))
LINES = [number for number, line in enumerate(text_of(README).splitlines()) if line.strip()]


def of_readme(markdown: str) -> list[str]:
    return problems("README.md", markdown, CLAIMS)


def test_the_figures_of_readme_are_those_of_their_files() -> None:
    assert of_readme(README) == []
    assert len(FIGURES) > 40


@pytest.mark.parametrize("table", ["", "{}", "README.md:", "LICENSES/README.md: []\nREADME.md: []"])
def test_a_table_or_a_page_without_a_row_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    monkeypatch.setattr("figures.TABLE", tmp_path / "figures.yml")
    monkeypatch.setattr("figures.ROOT", tmp_path)
    for page in (tmp_path / "README.md", tmp_path / "LICENSES/README.md"):
        page.parent.mkdir(exist_ok=True)
        page.write_text("Nothing to compare.")
    (tmp_path / "figures.yml").write_text(table)
    assert main() == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) == max(1, table.count("README"))
    assert all("so nothing is compared. Restore its rows" in line for line in told)


def test_it_is_a_gate() -> None:
    assert "figures" in gates.USUAL


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.start}-{figure.shown}")
def test_another_figure_fails(figure: Figure) -> None:
    other = "eleven" if figure.shown.lower() in IN_WORDS else f"{figure.shown[:-1]}{(int(figure.shown[-1]) + 1) % 10}"
    line = 1 + README.count("\n", 0, figure.start)
    found = of_readme(README[: figure.start] + other + README[figure.end :])
    assert any(problem.startswith(f"README.md:{line}: {other} in ") for problem in found)


@pytest.mark.parametrize("added", ["It takes 7.5 s.", "3x as fast", "Twelve of them work."])
@pytest.mark.parametrize("number", LINES)
def test_an_unbound_figure_fails(number: int, added: str) -> None:
    lines = README.splitlines()
    lines[number] += f" {added}"
    assert any("is bound to no file. Add a row to figures.yml" in problem for problem in of_readme("\n".join(lines)))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["says"])
def test_a_row_whose_claim_is_gone_fails(claim: dict[str, object]) -> None:
    [found] = problems("README.md", "Nothing of it.", [claim])
    assert "is 0 times on the page, not once. Correct its row in figures.yml" in found


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("one H200, x86-64, p99 and ansible-core", []),
        ("1,000 nodes, 5.0 s, 2.19.14, 3x, Five", ["1,000", "5.0", "2.19.14", "3", "Five"]),
        ("two-node, 10 of 12", ["two", "10", "12"]),
        ("`sleep 5` [after 4 s](docs/7.md#9-s) <!-- 8 -->", ["4"]),
        ("```sh\nsleep 5\n```\n![six pods](3.svg)", ["six"]),
    ],
)
def test_what_is_a_figure(markdown: str, shown: list[str]) -> None:
    text = text_of(markdown)
    assert len(text) == len(markdown)
    assert [figure.shown for figure in figures(text)] == shown


@pytest.mark.parametrize(
    ("said", "row", "problem"),
    [
        ("5.0 s", {"value": "max(s)"}, None),
        ("5 s", {"value": "max(s)"}, None),
        ("5.1 s", {"value": "max(s)", "round": "up"}, None),
        ("5.0 s", {"value": "max(s)", "round": "up"}, "has 5.04. Correct the page"),
        ("4 s", {"value": "max(s)"}, "run.json has 5.04. Correct the page"),
        ("7 s", {"sum": [{"value": "s[0]"}, {"value": "max(s)"}]}, None),
        ("3 s", {"value": "length(s[?@<=`5`])"}, "has 2. Correct the page"),
        ("3 s", {"value": "length(unique(s))"}, None),
        ("5.0 s", {"value": "longest"}, "run.json has no longest. Correct its row"),
        ("5.0 s", {"find": r"s: (\d+)"}, "run.json has 0 values for"),
        ("5.0 s", {"value": "s", "file": "gone.json"}, "gone.json is missing. Correct its row"),
    ],
)
def test_a_figure_is_the_value_of_its_file(
    tmp_path: Path, said: str, row: dict[str, object], problem: str | None
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"s": [2, 3, 5.04]}))
    claims = [{"says": "It takes {} s", "file": "run.json", "figures": [row]}]
    found = problems("page.md", f"\nIt\ntakes {said}", claims, tmp_path)
    assert [text for text in found if problem is None or not (text.startswith("page.md:3: ") and problem in text)] == []
    assert len(found) == (problem is not None)


def test_a_picture_s_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.svg").write_text('<svg><text x="3">ready&#160;</text><text x="9">8.0&#160;s</text></svg>')
    claims = [{"says": "ready after {} s", "file": "run.svg", "figures": [{"find": r"ready (\S+) s"}]}]
    assert problems("page.md", "ready after 8.0 s", claims, tmp_path) == []
    assert "run.svg has 8.0. Correct the page" in problems("page.md", "ready after 8.1 s", claims, tmp_path)[0]
