"""What `-vvv --diff` writes into the logs of a run that makes a cluster."""

from __future__ import annotations

import re

import pytest
import yaml
from server import EPHEMERAL
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_control_plane"]

LOGS = EPHEMERAL / "kubespray"
TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
# A private key, and one in base64 as a kubeconfig has it.
KEY = re.compile(r"PRIVATE KEY|LS0tLS1CRUdJTiB(?:SU0EgUFJJVkFURSBLRVkt|FQyBQUklWQVRFIEtFWS0t)")


@pytest.fixture(scope="module")
def log() -> str:
    """Of all runs until now, line by line as it was written."""
    return "".join(path.read_text(errors="replace") for path in sorted(LOGS.glob("*.log")))


def test_the_runs_said_all_that_they_can(log: str) -> None:
    assert "EXEC " in log
    assert "kubeadm init" in log
    assert "+++ after" in log


def test_no_token_and_no_private_key_is_in_them(log: str) -> None:
    assert TOKEN.findall(log) == []
    assert KEY.findall(log) == []


def test_the_administrators_key_is_not_in_them(host: Host, log: str) -> None:
    [user] = yaml.safe_load(host.file("/etc/kubernetes/admin.conf").content_string)["users"]

    assert user["user"]["client-key-data"][:200] not in log


def test_the_runs_were_those_of_somebody_else(log: str) -> None:
    assert "ESTABLISH SSH CONNECTION FOR USER: ubuntu" in log
    assert f"Using {LOGS}/ansible.cfg as config file" in log
