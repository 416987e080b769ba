"""`make browser` finds what a person would call broken on a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="selenium is one of requirements-gates.txt")
import browser
from programs import missing
from selenium.webdriver import Chrome

PAGE = """<!DOCTYPE html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>t</title>
<link rel="icon" href="data:,"><style>body {{ font: 16px sans-serif; background: #fff; color: #000 }} {style}</style>
</head><body>{body}</body></html>"""
WORDS = "several words that need some room"
TABLE = f"<div style='overflow-x: auto'><table><tr><td style='min-width: 1600px'>{WORDS}</td></tr></table></div>"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    if not any(map(shutil.which, browser.CHROMIUM)):
        missing("no Chromium: `make gates` installs it")
    with browser.browser() as started:
        yield started


def look(chrome: Chrome, folder: Path, body: str, style: str = "", width: int = browser.DESKTOP) -> list[str]:
    (folder / "page.html").write_text(PAGE.format(body=body, style=style))
    with browser.served(folder) as address:
        browser.load(chrome, f"{address}/page.html")
        return browser.look(chrome, width)


@pytest.mark.parametrize("width", [browser.PHONE, browser.DESKTOP])
def test_a_good_page_has_no_fault(chrome: Chrome, tmp_path: Path, width: int) -> None:
    body = f"<h1>Title</h1><p>{WORDS}</p><pre style='overflow: auto'>{'a long line ' * 40}</pre>"
    assert look(chrome, tmp_path, body, width=width) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (f"<p style='width: 2000px'>{WORDS}</p>", "the page scrolls sideways"),
        (TABLE, "a table is wider than its frame"),
        (f"<p style='width: 60px; white-space: nowrap; overflow: hidden'>{WORDS}</p>", "a text is cut off"),
        (f"<p style='height: 20px; width: 90px; overflow: hidden'>{WORDS}</p>", "a text is cut off"),
        (f"<p>{WORDS}</p><p style='margin-top: -32px'>other text</p>", "texts overlap"),
        ("<p style='width: 60px; overflow-wrap: anywhere'>Uncharacteristically</p>", "a word is broken"),
        ("<p style='color: #aaa'>grey</p>", "faint text"),
        ("<svg viewBox='0 0 400 20' width='200'><text y='12' font-size='12'>small</text></svg>", "letters of 6.0 px"),
        ("<svg viewBox='0 0 40 20' width='40'><text y='12' x='30'>outside</text></svg>", "outside of its picture"),
        ("<script>console.error('broken')</script>", "the console has"),
        ("<img src='missing.png' alt='missing'>", "the console has"),
    ],
)
def test_a_fault_is_found(chrome: Chrome, tmp_path: Path, body: str, fault: str) -> None:
    found = look(chrome, tmp_path, body)
    assert any(fault in text for text in found), found


def test_letters_of_a_picture_that_is_loaded_are_measured(chrome: Chrome, tmp_path: Path) -> None:
    svg = "<svg xmlns='http://www.w3.org/2000/svg' viewBox=\"0 0 960 20\"><text style='font-size: 12px'>a</text></svg>"
    (tmp_path / "plot.svg").write_text(svg)
    body = "<img src='plot.svg' alt='a plot' style='width: 100%'>"
    assert look(chrome, tmp_path, body) == []
    [fault] = look(chrome, tmp_path, body, width=browser.PHONE)
    assert "in the picture plot.svg" in fault


def test_a_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(browser.MissingError, match="apt-get install chromium chromium-driver"):
        browser.program(browser.CHROMIUM)
