"""A pending reboot of a node. Runs after the tests that check files in /run, because a reboot empties it."""

from __future__ import annotations

import json

import pytest
from kubectl import kubectl
from server import PLAYBOOKS, Server, run

testinfra_hosts = ["ansible://kube_node"]

NEXT = "99.0.0-1-amd64"
MARK = "kubegpu.autoscale/cordoned-for-driver"


def cordoned(cp1: Server) -> bool:
    return json.loads(kubectl(cp1.host, "get node gpu1 --output=json"))["spec"].get("unschedulable", False)


@pytest.mark.slow
def test_a_node_does_not_reboot_into_a_kernel_without_a_module(cp1: Server, gpu1: Server) -> None:
    gpu1.sh("install -D /dev/null /lib/modules/$(uname -r)/updates/dkms/nvidia.ko")
    gpu1.sh(f"mkdir -p /lib/modules/{NEXT} && touch /boot/vmlinuz-{NEXT} /run/reboot-required")
    with gpu1.bootable() as shutdowns:
        without_module = run(PLAYBOOKS / "maintain.yml")

        assert not without_module.succeeded
        assert f"kernel {NEXT} boots next" in without_module.text
        assert (cordoned(cp1), shutdowns) == (True, [])

        gpu1.sh(f"rm -r /lib/modules/{NEXT} /boot/vmlinuz-{NEXT}")

        # This scenario has no device plugin, so no pod can prove the GPU after the reboot.
        unproven = run(PLAYBOOKS / "maintain.yml")

        assert (unproven.succeeded, cordoned(cp1), len(shutdowns)) == (False, True, 1)
    kubectl(cp1.host, "uncordon gpu1")
    kubectl(cp1.host, f"annotate node gpu1 {MARK}-")
