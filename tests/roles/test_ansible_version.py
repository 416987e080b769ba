"""An ansible-core that is too old ends a run in one sentence, with each way to show output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from collection import ROOT

OLD = "2.17.14"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
PYTHON = PLAYBOOK.read_text().splitlines()[0].removeprefix("#!")
SENTENCE = (
    "controller -> Ansible: kubegpu.autoscale needs ansible-core 2.19 or later, with Python 3.11 or later, and this is "
    f"ansible-core {OLD} of {PYTHON}. Nothing was changed. Next: install ansible-core 2.19 or later, in a "
    "virtual environment for instance"
)


def output(folder: Path, playbook: str, **settings: str) -> str:
    """Of a run by an ansible-core of that version, with the inventory of one server, which is this machine."""
    inventory = folder / "my-servers"
    shutil.copytree(ROOT / "inventories" / "single-node", inventory)
    hosts = (inventory / "hosts.yml").read_text()
    (inventory / "hosts.yml").write_text(hosts.replace("ansible_host: 192.0.2.10", "ansible_connection: local"))
    patch = f"import ansible.release\nansible.release.__version__ = {OLD!r}\n"
    (folder / "sitecustomize.py").write_text(patch)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv" / "collections"),
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "PYTHONPATH": str(folder),
        **settings,
    }
    command = [str(PLAYBOOK), f"kubegpu.autoscale.{playbook}"]
    done = subprocess.run(command, cwd=inventory, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("callback", ["kubegpu.autoscale.phases", "ansible.builtin.default"])
@pytest.mark.parametrize("playbook", ["site", "gpu", "doctor"])
def test_an_older_ansible_is_named_with_its_path(tmp_path: Path, playbook: str, callback: str) -> None:
    text = output(tmp_path, playbook, ANSIBLE_STDOUT_CALLBACK=callback)

    assert SENTENCE in text
    assert "Traceback" not in text
    assert "Failure using method" not in text


@pytest.mark.parametrize("version", ["2.19.0rc1", "2.22.0.dev0", "3.0.0"])
def test_a_newer_one_is_accepted(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "OLD", version)

    assert "needs ansible-core" not in output(tmp_path, "gpu", ANSIBLE_STDOUT_CALLBACK="kubegpu.autoscale.phases")
