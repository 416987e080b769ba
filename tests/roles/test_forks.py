"""What is forked does what a process that starts from nothing does: words, folder, environment, streams and status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from playbook import local
from python_forks import forked_python

SCRIPT = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["OF_THIS_RUN"], sys.stdin.read()]))
print("told", file=sys.stderr)
sys.exit(7)
"""
ENDS = """
import atexit, sys, threading
atexit.register(print, "end")
threading.Timer(0.2, print, ["thread"]).start()
sys.exit({status})
"""


@pytest.mark.parametrize("kubeconfig", [None, "another"], ids=["forked", "started: the library reads it first"])
def test_a_script_sees_its_own_folder_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: str | None
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    python = forked_python()
    if kubeconfig:
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
    monkeypatch.setenv("OF_THIS_RUN", "here")
    asked = {"cwd": tmp_path, "input": "words", "capture_output": True, "text": True}

    done = subprocess.run([python, "script.py"], **asked)

    assert json.loads(done.stdout) == [[], str(tmp_path), "here", "words"]
    assert (done.stderr, done.returncode) == ("told\n", 7)


def test_a_script_may_come_as_input_and_gets_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THIS_RUN", "here")

    done = subprocess.run([forked_python()], cwd=tmp_path, input=SCRIPT, capture_output=True, text=True)

    assert json.loads(done.stdout) == [[], str(tmp_path), "here", ""]
    assert (done.stderr, done.returncode) == ("told\n", 7)


@pytest.mark.parametrize("status", ["None", "0", "3", "'a reason'"])
def test_a_script_ends_as_it_does_by_python_itself(tmp_path: Path, status: str) -> None:
    """What it has put off until its end is done, and its other threads end before."""
    (tmp_path / "script.py").write_text(ENDS.format(status=status))
    by_python, forked = (
        subprocess.run([python, "script.py"], cwd=tmp_path, capture_output=True, text=True)
        for python in (sys.executable, forked_python())
    )

    assert (forked.stdout, forked.stderr) == (by_python.stdout, by_python.stderr)
    assert forked.returncode == by_python.returncode
    assert forked.stdout == "thread\nend\n"


def test_a_script_that_breaks_says_where(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import ansible_forks")

    done = subprocess.run([forked_python(), tmp_path / "script.py"], capture_output=True, text=True)

    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'ansible_forks'" in done.stderr


def test_a_playbook_sees_its_own_folder_and_environment(tmp_path: Path) -> None:
    for folder, word in (("one", "first"), ("two", "second")):
        (tmp_path / folder).mkdir()
        shown = {"ansible.builtin.debug": {"msg": "{{ lookup('env', 'OF_THIS_RUN') }} in {{ playbook_dir }}"}}
        play = [{"hosts": "localhost", "gather_facts": False, "tasks": [shown]}]
        (tmp_path / folder / "play.yml").write_text(json.dumps(play))

        done = ansible_playbook("-i", "localhost,", "play.yml", cwd=tmp_path / folder, env={"OF_THIS_RUN": word})

        assert f"{word} in {tmp_path / folder}" in done.stdout
        assert done.returncode == 0


def test_a_playbook_that_is_not_there_fails(tmp_path: Path) -> None:
    done = ansible_playbook("-i", "localhost,", "gone.yml", cwd=tmp_path)

    assert done.returncode == 1
    assert "the playbook: gone.yml could not be found" in done.stderr


def test_a_role_has_its_filters_compiled_before_its_tasks(tmp_path: Path) -> None:
    """In the first process of a run: the processes of its tasks are forks of that, and would compile them each."""
    include = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale._common"}}
    (tmp_path / "play.yml").write_text(json.dumps(local(include)))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "PYTHONPROFILEIMPORTTIME": "1"}
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "play.yml"]

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"module_utils\.report\.run_summary$", done.stderr, re.MULTILINE)) == 1
