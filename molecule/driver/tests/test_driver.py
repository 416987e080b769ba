"""Ways in which GPU drivers are known to break, one a test, with its source. docs/driver.md lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from server import B200, BRIDGE, NVSWITCH, SCENARIO, Run, Server, pinned, run
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

PINNED = pinned("nvidia-driver")
# Of the branches before and after it; NVIDIA's repository for Debian 12 has both.
OLDER, NEWER = "570.195.03", "590.48.01"
SET = {
    *("libcuda1", "libnvidia-cfg1", "libnvidia-ml1"),
    *("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-support", "nvidia-persistenced"),
}
FABRIC_MANAGER = "nvidia-fabricmanager"
PIN = "/etc/apt/preferences.d/kubegpu-nvidia-cuda.pref"
SETTINGS = "/etc/apt/apt.conf.d/60kubegpu-nvidia-cuda.conf"
LOCK = """
import fcntl, time
held = open('/var/lib/dpkg/lock-frontend', 'w')
fcntl.lockf(held, fcntl.LOCK_EX)
time.sleep(30)
"""
PROXY = """
import http.server, urllib.request
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with urllib.request.urlopen(self.path) as answer:
            content = answer.read()
            self.send_response(answer.status)
            self.send_header('Content-Length', str(len(content)))
            self.end_headers()
            self.wfile.write(content)
http.server.ThreadingHTTPServer(('127.0.0.1', 3128), Proxy).serve_forever()
"""
MODPROBE = """#!/bin/sh
echo "$*" >>/run/called
case $* in
    "--remove nouveau") rmdir /run/machine/sys/module/nouveau ;;
    nvidia) systemctl start nvidia-persistenced; ln -s /proc/driver/nvidia /run/machine/proc/driver/ ;;
esac
"""
# Stands in for a program and remembers that it was called.
PROGRAM = """#!/bin/sh
echo "$0 $*" >>/run/called
"""


def role(*flags: str, release: str = "", reboots: bool = False, **options: object) -> Run:
    """Run the role; `release` is what nvidia_driver_version asks for; with `reboots` the role decides on them."""
    if not reboots:
        options["nvidia_driver_reboot_ok"] = False
    if release:
        options["nvidia_driver_version"] = f"{release}-*"
    return run(SCENARIO / "converge.yml", *flags, **options)


@pytest.fixture
def driver(host: Host) -> Server:
    """A server with the pinned driver in use."""
    server = Server(host)
    if installed(server) != dict.fromkeys(SET, PINNED) or PINNED not in server.sh(f"cat {PIN} || true"):
        assert role(release=PINNED).succeeded
    if loaded(server) != PINNED:
        load(server)
    return server


@contextmanager
def switches(server: Server) -> Iterator[None]:
    """NVSwitches between the GPUs, and none of their software afterwards."""
    with server.plugged(NVSWITCH):
        yield
    server.sh("systemctl disable --now --quiet nvidia-fabricmanager; apt-get --yes purge 'nvidia-fabricmanager*' 2>&1")


def installed(server: Server) -> dict[str, str]:
    """Release of each package of the driver; Debian's nvidia-kernel-common, of a number of its own, is none of it."""
    form = r"${Package} ${db:Status-Status} ${Version}\n"
    rows = server.sh(f"dpkg-query --show --showformat '{form}' '*nvidia*' 'libcuda*' nvlsm || true").splitlines()
    fields = [row.split() for row in rows]
    return {
        name: version[0].rpartition("-")[0]
        for name, state, *version in fields
        if state == "installed" and "-" in version[0]
    }


def loaded(server: Server) -> str:
    """Release of the loaded driver; empty if none is."""
    found = re.search(r"  ([\d.]+)  ", server.sh("cat /proc/driver/nvidia/version || true"))
    return found[1] if found else ""


def load(server: Server) -> None:
    """What loading the kernel module anew is: in the lab, the driver is a daemon."""
    server.sh("systemctl restart nvidia-persistenced")


def transactions(server: Server) -> list[str]:
    """apt's own account, an entry a transaction."""
    return server.sh("cat /var/log/apt/history.log").split("Start-Date: ")


def runs(server: Server, unit: str) -> bool:
    return server.host.service(unit).is_running


def test_the_whole_set_stays_when_newer_ones_are_offered(driver: Server) -> None:
    """A pin on one package moves nothing else: dstackai/dstack#2348, NVIDIA/ansible-role-nvidia-driver#28."""
    assert NEWER in driver.sh("apt-cache madison nvidia-driver-cuda")

    assert "Inst" not in driver.sh("apt-get --simulate dist-upgrade")


def test_unattended_upgrades_leaves_it_alone(driver: Server) -> None:
    """It replaced the driver under a running cluster: kubernetes-sigs/kubespray#8540. Here the pin does not help."""
    driver.sh("apt-get --yes --no-install-recommends install unattended-upgrades 2>&1")
    driver.sh("""echo 'Unattended-Upgrade::Origins-Pattern { "site=*"; };' >/etc/apt/apt.conf.d/99everything""")
    look = "unattended-upgrade --dry-run --debug 2>&1 | grep 'Packages that will be upgraded' || true"
    driver.sh(f"mv {PIN} /root/pin")
    try:
        held = driver.sh(look)
        driver.sh(f"mv {SETTINGS} /root/settings")
        free = driver.sh(look)
    finally:
        driver.sh(f"mv /root/pin {PIN}; mv /root/settings {SETTINGS}; rm /etc/apt/apt.conf.d/99everything")
        driver.sh("apt-get --yes purge --autoremove unattended-upgrades 2>&1")

    assert "nvidia" not in held
    assert "nvidia-driver-cuda" in free


def test_an_upgrade_says_that_a_reboot_is_due(driver: Server) -> None:
    """NVML: driver/library version mismatch, until a reboot: NVIDIA/deepops#1186, #1017."""
    reason = f"driver {PINNED} is loaded, but {NEWER} is installed"
    would = role("--check", "--diff", release=NEWER)
    assert would.succeeded
    assert would.changed
    assert installed(driver) == dict.fromkeys(SET, PINNED)

    first = role(release=NEWER)
    again = role(release=NEWER)

    assert installed(driver) == dict.fromkeys(SET, NEWER)
    assert first.returned == {"required": True, "reason": reason}
    assert "Driver/library version mismatch" in driver.sh("nvidia-smi || true")
    assert (again.changed, again.returned) == (0, first.returned)
    load(driver)
    assert role(release=NEWER).returned == {"required": False, "reason": ""}


def test_a_driver_that_somebody_else_brought_is_checked_and_never_changed(driver: Server) -> None:
    """Cloud images, DGX OS and kernels of vendors include their own driver."""
    before = installed(driver)
    driver.sh("systemctl stop nvidia-persistenced")  # in the lab, the driver is a daemon
    try:
        broken = role(nvidia_driver_state="existing")
    finally:
        load(driver)
    whole = role(nvidia_driver_state="existing")
    again = role(nvidia_driver_state="existing", release=NEWER)

    assert not broken.succeeded
    assert "none is loaded" in broken.text
    assert whole.returned == {"required": False, "reason": ""}
    assert (again.succeeded, again.changed) == (True, 0)
    assert installed(driver) == before


def test_a_branch_changes_in_one_transaction(driver: Server) -> None:
    """Held broken packages, while the old branch is there: NVIDIA/ansible-role-nvidia-driver#11, #33."""
    with switches(driver):
        assert role(release=OLDER).succeeded
        load(driver)
        assert role(release=OLDER).succeeded
        driver.sh("apt-get --yes install libnvidia-nscq-570 2>&1")
        assert installed(driver) == dict.fromkeys(SET | {"nvidia-fabricmanager-570", "libnvidia-nscq-570"}, OLDER)
        before = len(transactions(driver))

        assert role(release=NEWER).succeeded

        (transaction,) = transactions(driver)[before:]
        assert installed(driver) == dict.fromkeys(SET | {FABRIC_MANAGER}, NEWER)
        (purged,) = re.findall(r"^Purge: (.*)", transaction, re.MULTILINE)
        assert sorted(re.findall(r"(\S+):amd64", purged)) == ["libnvidia-nscq-570", "nvidia-fabricmanager-570"]


def test_it_does_not_go_down_unless_asked_to(driver: Server) -> None:
    """Dependencies say >=, so the libraries would stay behind: dstackai/dstack#2348."""
    assert role(release=NEWER).succeeded

    refused = role()
    assert f"node1 has driver {NEWER}, newer than {PINNED}-* of the collection's version file" in refused.text
    assert not refused.succeeded
    assert installed(driver) == dict.fromkeys(SET, NEWER)

    assert role(release=PINNED).succeeded
    assert installed(driver) == dict.fromkeys(SET, PINNED)


def test_a_renewed_key_comes_with_the_next_release(driver: Server) -> None:
    """EXPKEYSIG for ever: kubernetes/release#3818, NVIDIA/libnvidia-container#109. The fingerprint stays the same."""
    key = "/etc/apt/keyrings/kubegpu-nvidia-cuda.asc"
    renewed = driver.sh(f"cat {key}")
    driver.sh(f"echo expired >{key}")

    assert role(release=NEWER).succeeded
    assert driver.sh(f"cat {key}") == renewed


def test_what_somebody_holds_is_not_moved_by_half(driver: Server) -> None:
    """NVIDIA/ansible-role-nvidia-driver#11; Azure/azhpc-images#86 holds packages."""
    driver.sh("apt-mark hold nvidia-driver-cuda")
    pin = driver.sh(f"cat {PIN}")

    refused = role(release=NEWER)
    stays = role(release=PINNED)
    driver.sh("apt-mark unhold nvidia-driver-cuda")

    assert "`apt-mark unhold nvidia-driver-cuda`" in refused.text
    assert not refused.succeeded
    assert refused.changed == 0
    assert driver.sh(f"cat {PIN}") == pin
    assert stays.succeeded


def test_another_apt_is_waited_for(driver: Server) -> None:
    """ansible/ansible#51663, kubernetes-sigs/kubespray#8737."""
    driver.sh(f'systemd-run --quiet --collect --unit lock python3 -c "{LOCK}"')

    impatient = role(release=NEWER, kubegpu_apt_lock_timeout=1)
    patient = role(release=NEWER)

    assert not impatient.succeeded
    assert "lock-frontend" in impatient.text
    assert patient.succeeded
    assert installed(driver) == dict.fromkeys(SET, NEWER)


def test_fabric_manager_is_of_the_driver_s_release(driver: Server) -> None:
    """It refuses any other to the last digit: NVIDIA/gpu-operator#544, NVIDIA/gpu-driver-container#735."""
    with switches(driver):
        assert role().succeeded
        assert runs(driver, FABRIC_MANAGER)
        driver.sh(f"apt-get --yes --allow-downgrades install {FABRIC_MANAGER}={NEWER}-1 2>&1")
        driver.sh("systemctl restart nvidia-fabricmanager || true")
        assert not runs(driver, FABRIC_MANAGER)

        assert role().succeeded

        assert installed(driver)[FABRIC_MANAGER] == PINNED
        assert runs(driver, FABRIC_MANAGER)
        assert driver.host.service(FABRIC_MANAGER).is_enabled


def test_a_fabric_manager_that_fails_is_told_with_its_error(driver: Server) -> None:
    """CUDA error 802 says nothing of it: wilicc/gpu-burn#92, pytorch/pytorch#35710."""
    drop_in = f"/etc/systemd/system/{FABRIC_MANAGER}.service.d"
    with switches(driver):
        driver.sh(rf"mkdir {drop_in}; printf '[Service]\nExecStartPre=false\n' >{drop_in}/fail.conf")
        failed = role()
        driver.sh(f"rm -r {drop_in}; systemctl daemon-reload")

    assert "error 802" in failed.text
    assert not failed.succeeded


def test_without_switches_there_is_no_fabric_manager(driver: Server) -> None:
    """It exits with NV_WARN_NOTHING_TO_DO: NVIDIA/gpu-operator#610, #1043."""
    assert role().succeeded
    assert not {FABRIC_MANAGER, "nvlsm"} & installed(driver).keys()


def test_nvlink5_gets_its_subnet_manager(driver: Server) -> None:
    """siderolabs/extensions#717, #893. The lab's driver knows no B200, so without the verification."""
    driver.sh(f"cat >/usr/local/sbin/modprobe <<'END'\n{PROGRAM}END\nchmod +x /usr/local/sbin/modprobe")
    with driver.plugged(B200, BRIDGE, instead=True):
        done = role("--tags", "nvidia_driver_install,nvidia_driver_configure")
    packages, called, manager = installed(driver), driver.sh("cat /run/called"), runs(driver, FABRIC_MANAGER)
    at_boot = driver.sh("cat /etc/modules-load.d/kubegpu-nvlink.conf")
    gone = role(nvidia_driver_state="absent")
    driver.sh("rm /usr/local/sbin/modprobe /run/called")

    assert done.succeeded
    assert packages == dict.fromkeys(SET | {FABRIC_MANAGER}, PINNED) | {"nvlsm": "2025.10.14"}
    assert "modprobe ib_umad" in called
    assert at_boot.endswith("ib_umad")
    assert manager
    assert gone.succeeded
    assert installed(driver) == {}
    assert not driver.host.file("/etc/modules-load.d/kubegpu-nvlink.conf").exists


@pytest.fixture
def nouveau(driver: Server) -> Iterator[Server]:
    """A bare server whose kernel has loaded nouveau, in the copy that gpu_facts reads."""
    assert role(nvidia_driver_state="absent").succeeded
    driver.sh("cd /run; mkdir -p machine/sys/module/nouveau machine/sys/bus/pci machine/proc/driver machine/var/lib")
    driver.sh("cd /run/machine; cp -r /sys/bus/pci/devices sys/bus/pci/; ln -s /var/lib/dpkg var/lib/dpkg")
    yield driver
    driver.sh("rm -rf /run/machine /usr/sbin/update-initramfs /usr/local/sbin/modprobe /run/called")


def test_nouveau_leaves_with_the_initramfs_and_a_reboot(nouveau: Server) -> None:
    """Handled on some paths only: NVIDIA/ansible-role-nvidia-driver#44, #51. Here a console holds it."""
    nouveau.sh(f"cat >/usr/sbin/update-initramfs <<'END'\n{PROGRAM}END\nchmod +x /usr/sbin/update-initramfs")
    nouveau.sh("printf '#!/bin/sh\nexit 1\n' >/usr/local/sbin/modprobe; chmod +x /usr/local/sbin/modprobe")

    first = role(machine="/run/machine")
    again = role(machine="/run/machine")

    assert nouveau.sh("cat /run/called") == "/usr/sbin/update-initramfs -u"
    assert first.returned["reason"].startswith("nouveau is loaded and holds the GPUs")
    assert "Reboot it, or set nvidia_driver_reboot_ok" in first.text
    assert (again.changed, again.returned) == (0, first.returned)
    assert not runs(nouveau, "nvidia-persistenced")


def test_nouveau_leaves_without_a_reboot_where_nothing_holds_it(nouveau: Server) -> None:
    """As NVIDIA's own driver container does. In the lab, loading the driver is the start of a daemon."""
    nouveau.sh(f"cat >/usr/local/sbin/modprobe <<'END'\n{MODPROBE}END\nchmod +x /usr/local/sbin/modprobe")

    first = role(machine="/run/machine", reboots=True)
    again = role(machine="/run/machine", reboots=True)

    assert nouveau.sh("cat /run/called").splitlines() == ["--remove nouveau", "nvidia"]
    assert first.returned == {"required": False, "reason": ""}
    assert again.changed == 0


def test_a_proxy_serves_these_repositories_alone(driver: Server) -> None:
    """Behind a proxy, kubernetes-sigs/kubespray sets it for all that apt does."""
    assert role(nvidia_driver_state="absent").succeeded
    driver.sh("apt-get clean")
    driver.sh(f"cat >/run/proxy.py <<'END'\n{PROXY}END")
    log = "--property StandardError=truncate:/run/proxy.log"
    driver.sh(f"systemd-run --quiet --collect --unit proxy {log} python3 /run/proxy.py")
    driver.sh("timeout 10 sh -c 'until grep --quiet :0C38 /proc/net/tcp; do sleep 0.1; done'")

    proxied = role(kubegpu_apt_proxy="http://127.0.0.1:3128")
    asked = driver.sh("cat /run/proxy.log")
    driver.sh("systemctl stop proxy")

    assert proxied.succeeded
    assert "/InRelease" in asked
    assert f"nvidia-driver-cuda_{PINNED}-1_amd64.deb" in asked
    assert role().succeeded
    assert "Proxy" not in driver.sh(f"cat {SETTINGS}")


def test_a_reboot_brings_the_new_driver(driver: Server) -> None:
    """No check of the driver after it: NVIDIA/ansible-role-nvidia-driver#20. A server in no cluster may reboot."""
    with driver.bootable() as shutdowns:
        done = role(release=NEWER, reboots=True)
        again = role(release=NEWER, reboots=True)

    assert done.succeeded
    assert done.returned == {"required": False, "reason": ""}
    assert loaded(driver) == NEWER
    assert again.changed == 0
    assert len(shutdowns) == 1


def test_absent_leaves_the_server_as_it_was(driver: Server) -> None:
    """NVIDIA/aicr#1553: what an uninstallation leaves behind."""
    assert role(nvidia_driver_state="absent").succeeded
    others = ("*/__pycache__", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/systemd")
    left_out = " ".join(f"-not -path '{path}/*'" for path in others)
    look = f"find /etc /usr /var/lib -xdev {left_out} | sort; dpkg --get-selections"
    bare = driver.sh(look)
    assert role(release=OLDER).succeeded

    gone = role(nvidia_driver_state="absent")

    assert gone.returned == {"required": False, "reason": ""}
    assert driver.sh(look) == bare
    assert not re.findall(r".*(?:kubegpu|nvidia|nouveau|libcuda).*", bare)
    assert loaded(driver) == ""
    assert role(nvidia_driver_state="absent").changed == 0
