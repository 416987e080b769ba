"""What tools/words.py, in `make lint`, finds in pages, code, tasks and subjects of commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import words

PYTHON = """\"\"\"A module.\"\"\"
def fail(name):
    raise ValueError(f"the object {name} was made by somebody else")
"""
TASKS = """
- name: Say what changes
  ansible.builtin.debug:
    msg: the driver stays, because this role did not bring it; it is brought by a package
"""
SPEC = """
argument_specs:
  main:
    options:
      x:
        description: Whether the label is to be there.
"""


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("docs/a.md", "A release of ours stays.", ["managed by this collection"]),
        ("docs/a.md", "The release is managed by this collection.", []),
        ("docs/a.md", "The option `ours` stays.", []),
        ("docs/a.md", "Each has a rule of its own.", ["separate, its own"]),
        ("docs/a.md", "Each has the labels of its own inventory.", []),
        ("docs/a.md", "Who may not list them sees none.", ["a sentence whose subject is the thing or `you`"]),
        ("docs/a.md", "Who can list them?", []),
        ("docs/a.md", " ".join(["word"] * 36), ["sentences of at most 35 words"]),
        ("plugins/module_utils/a.py", PYTHON, ["existing, not managed by this collection; nothing"]),
        ("roles/a/tasks/main.yml", "a: 1 # is told to the cluster", ["is reported by, shows, reports"]),
        ("roles/a/tasks/main.yml", "# Written whole, in one step.", ["a sentence with a subject"]),
        ("roles/a/tasks/main.yml", "# A run that was killed is gone on with.", ["an interrupted run resumes"]),
        ("roles/a/vars/main.yml", "a: b#ours # only asks", ["only reads; is starting, is new"]),
        ("meta/runtime.yml", "# Of the modules.", ["a sentence with a verb"]),
        ("roles/a/meta/argument_specs.yml", SPEC, ["exists, is missing", "must, should, will"]),
    ],
)
def test_what_is_found_in_a_file(tmp_path: Path, path: str, text: str, found: list[str]) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)

    assert sorted(fault.instead for fault in words.faults_of_file(tmp_path, path)) == found


def test_a_task_has_a_verb_of_ansible_and_a_message_is_read(tmp_path: Path) -> None:
    (tmp_path / "tasks.yml").write_text(TASKS)

    found = list(words.faults_of_file(tmp_path, "tasks.yml"))

    assert [fault.instead.split(",")[0] for fault in found] == ["install", "install", "a verb of Ansible's for Say"]


@pytest.mark.parametrize(
    ("subject", "count"),
    [
        ("doctor: report the first broken hop", 0),
        ("doctor, plugins/modules: report the first broken hop", 0),
        ("Tell what is broken", 1),
        ("_common: report the first broken hop", 1),
        ("doctor: " + "x" * 65, 1),
        ("Merge branch 'main'", 1),
    ],
)
def test_a_subject_is_an_area_and_a_change(subject: str, count: int) -> None:
    assert len(list(words.faults_of_subject(subject))) == count


def test_pages_and_the_collection_are_checked_but_no_tests() -> None:
    assert words.is_read("plugins/modules/plan.py")
    assert words.is_read("docs/tested.md")
    assert not words.is_read("tests/unit/test_words.py")


def test_subjects_since_base_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        user = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        return subprocess.run(["git", *user, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    for subject in ("Old", "a: first", "b: second"):
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    base = git("rev-list", "--max-parents=0", "HEAD").strip()

    monkeypatch.setattr(words, "BASE", base)
    assert words.subjects(tmp_path) == ["b: second", "a: first"]
    monkeypatch.setattr(words, "BASE", "0" * 40)
    assert words.subjects(tmp_path) == [], "a history without BASE, as of a shallow clone"
