"""The site is built without a warning and loads nothing from elsewhere; its tasks are valid."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import yaml
from collection import COLLECTIONS_PATH, ROOT

BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]


def test_it_is_built_and_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "PLACE", tmp_path)
    assert pages.main() == 0
    site = tmp_path / "site"
    made = [*(ROOT / "plugins" / "modules").glob("*.py"), *(ROOT / "plugins" / "filter").glob("*.yml")]
    there = {path.stem for folder in ("modules", "filters") for path in (site / folder).glob("*.html")}
    assert there - {"index"} == {path.stem for path in made if "version_added" in path.read_text()}
    html = [path.read_text() for path in site.rglob("*.html")]
    loaded = [
        address
        for text in html
        for address in re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"?(https?:[^\" >]*)", text)
    ]
    assert loaded == []


@pytest.mark.parametrize(
    ("link", "is_wrong"), [("../README.md", False), ("model.md#demand", False), ("none.md", True), ("../none", True)]
)
def test_a_link_leads_somewhere(link: str, is_wrong: bool) -> None:
    text = f"[there]({link})"
    if is_wrong:
        with pytest.raises(pages.WrongLinkError, match="there is no"):
            pages.resolved("docs/tuning.md", text, {"README.md", "docs/model.md"})
    else:
        assert pages.resolved("docs/tuning.md", text, {"README.md", "docs/model.md"}).startswith("[there](")


def test_what_is_no_page_is_in_the_repository() -> None:
    shown = pages.resolved("docs/model.md", "[`one`](../galaxy.yml)", {"docs/model.md"})
    assert shown == f"[`one`]({pages.REPOSITORY}/galaxy.yml)"


def test_tasks_on_a_page_are_tasks(tmp_path: Path) -> None:
    documents = [yaml.safe_load(text) for page in PAGES for text in BLOCK.findall(page.read_text())]
    entries = [entry for part in documents if isinstance(part, list) for entry in part]
    plays = [entry for entry in entries if "hosts" in entry]
    tasks = [entry for entry in entries if any(key.count(".") == 2 for key in entry)]
    assert tasks
    (tmp_path / "play.yml").write_text(json.dumps([*plays, {"hosts": "localhost", "tasks": tasks}]))
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "--syntax-check", "-i", "localhost,", "play.yml"],
        cwd=tmp_path,
        env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
