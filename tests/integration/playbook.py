"""ansible-playbook as a user runs it, with the collection of this checkout."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH

# Of an include of one file of a role, which main.yml gives the cluster to otherwise.
# Of the API servers of the tests.
CONTEXT = "test"
ACCESS = {"module_defaults": {"group/kubegpu.autoscale.cluster": {"kubeconfig": "{{ kubegpu_kubeconfig }}"}}}


def run_playbook(
    folder: Path,
    playbook: str | Sequence[dict[str, Any]],
    variables: dict[str, Any],
    *flags: str,
    inventory: str = "localhost,",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """playbook: one of the collection's by its name, or plays. Runs in `folder`. Removals are confirmed."""
    if not isinstance(playbook, str):
        (folder / "play.yml").write_text(json.dumps(playbook))
        playbook = "play.yml"
    words = ("-i", inventory, playbook, "--extra-vars", json.dumps({"kubegpu_confirm": CONTEXT, **variables}), *flags)
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, **environment})
    print(done.stdout, done.stderr)  # pytest shows it when the test fails
    return done


def changed(output: str) -> int:
    """Tasks that a run reports as changed, of all hosts together."""
    recaps = re.findall(r"\bchanged=(\d+)", output)
    assert recaps, "the run has no recap"
    return sum(map(int, recaps))


def local(*tasks: dict[str, Any], **keywords: Any) -> list[dict[str, Any]]:
    """A play of these tasks on this machine."""
    return [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": list(tasks), **keywords}]
