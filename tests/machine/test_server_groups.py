"""On cgroup v2 what Ansible starts on a lab server is in the server's groups. Labs have a slice beside systemd's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
# A machine with cgroup v2, whatever this one has. The first process of its server is in a group.
MACHINE = """
set -e
mount -t cgroup2 cgroup2 /sys/fs/cgroup
server=/sys/fs/cgroup/kubegpu-test-{number}
mkdir -p $server/init.scope
sleep 60 & first=$!
trap 'kill $first; wait $first 2>/dev/null || :; rmdir $server/init.scope $server' EXIT
echo $first >$server/init.scope/cgroup.procs
echo $first >{folder}/server.pid
"""


def on_machine(tmp_path: Path, command: str) -> str:
    script = MACHINE.format(number=os.getpid(), folder=tmp_path) + command
    done = subprocess.run(["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, cwd=CHECKOUT)
    if "permission denied" in done.stderr:
        pytest.skip("mounts no cgroup v2")
    assert done.returncode == 0, done.stderr
    return done.stdout


pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="takes root and unshare")


def test_a_command_on_a_server_is_in_the_group_of_its_first_process(tmp_path: Path) -> None:
    shown = on_machine(tmp_path, f"lab/nodes/podman {tmp_path}/server.pid exec server cat /proc/self/cgroup")

    assert f"0::/kubegpu-test-{os.getpid()}/init.scope" in shown.splitlines()


def test_a_server_without_an_engine_has_a_group_in_the_labs_own_slice(tmp_path: Path) -> None:
    code = f"""
from lab import bare
def here():
    return open("/proc/self/cgroup").read().rpartition("0::")[2].strip()
first, before = here(), bare.origins()
print(bare.join("test-{os.getpid()}"))
print(here())
for group in before:
    (group / "cgroup.procs").write_text("0")
print(here() == first)
bare.leave("test-{os.getpid()}")
(bare.CGROUP / bare.SLICE).rmdir()
"""
    (tmp_path / "code.py").write_text(code)
    shown = on_machine(tmp_path, f"PYTHONPATH=. {sys.executable} {tmp_path}/code.py")

    assert shown.splitlines() == ["['cgroup2']", f"/kubegpu-lab/test-{os.getpid()}", "True"]
