"""Ways in which container runtimes on GPU nodes are known to break, one a test. docs/runtime.md lists them."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from server import SCENARIO, Run, Server, pinned, run
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

GPUS = 8
DRIVER, OLDER_DRIVER = pinned("nvidia-driver"), "570.195.03"
MAIN = "/etc/containerd/config.toml"
DROP_INS = "/etc/containerd/conf.d"
OURS = {"10-kubegpu.toml", "20-kubegpu-nvidia.toml"}
TOOLKIT = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
]
SPEC = "/var/run/cdi/nvidia.yaml"
GONE = {"containerd_state": "absent", "nvidia_container_toolkit_state": "absent"}
# What the lab says in the words of version 3, in those of version 2.
IN_VERSION_2 = {"plugins": {"io.containerd.grpc.v1.cri": {"restrict_oom_score_adj": True}}}
THEIRS = """# by hand
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  max_container_log_line_size = 777 # theirs
"""


def role(*flags: str, tags: str = "containerd,nvidia_container_toolkit", **options: Any) -> Run:
    """Run both roles, or what `tags` says of them."""
    return run(SCENARIO / "converge.yml", "--tags", tags, *flags, **options)


def configure(*flags: str, **options: Any) -> Run:
    return role(*flags, tags="containerd_configure", **options)


def package(server: Server, name: str, version: str, more: str = "") -> str:
    """Make a package, with a file for the program that it is called after. Gives its path."""
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\n{more}Description: stand-in\n"
    )
    folder = f"/run/stand-in/{name}"
    server.sh(f"mkdir -p {folder}/DEBIAN {folder}/usr/bin; touch {folder}/usr/bin/{name}")
    write(server, f"{folder}/DEBIAN/control", control)
    server.sh(f"dpkg-deb --root-owner-group -Znone --build {folder} /run/{name}.deb; rm -r /run/stand-in")
    return f"/run/{name}.deb"


@pytest.fixture
def server(host: Host) -> Server:
    return Server(host)


@pytest.fixture
def runtime(server: Server) -> Iterator[Server]:
    """A server as the roles leave it, before the test and after it."""
    yield server
    assert role().succeeded


@pytest.fixture
def bare(server: Server) -> Iterator[Server]:
    """A server that has the driver and nothing else, as it is afterwards. A containerd that a test made stay goes."""
    assert role(**GONE).succeeded
    server.sh("apt-get purge --yes --quiet containerd.io; rm -rf /opt/containerd /etc/containerd")
    server.sh("mkdir -p /var/lib/containerd; find /var/lib/containerd -mindepth 1 -delete")  # may be a mount point
    yield server
    assert role(**GONE).succeeded
    server.sh("rm -rf /etc/containerd")
    assert role().succeeded


@contextmanager
def main_file(server: Server, text: str) -> Iterator[None]:
    """The server with an existing main file and without drop-ins; restored afterwards."""
    server.sh(f"mkdir /root/ours; mv /etc/containerd/* /root/ours; mkdir {DROP_INS}")
    write(server, MAIN, text)
    try:
        yield
    finally:
        server.sh("rm -rf /etc/containerd/*; mv /root/ours/* /etc/containerd; rmdir /root/ours")


def environment(server: Server) -> str:
    return server.sh("systemctl show containerd --property Environment --value")


def write(server: Server, path: str, text: str) -> None:
    server.sh(f"cat >{path} <<'END'\n{text}END")


def read(server: Server, path: str) -> str:
    """A file with its last line break, which check_output() cuts off."""
    return base64.b64decode(server.sh(f"base64 {path}")).decode()


def read_all(server: Server) -> dict[str, str]:
    return {name: read(server, f"{DROP_INS}/{name}") for name in server.sh(f"ls {DROP_INS}").split()}


def merged(server: Server) -> dict[str, Any]:
    """The configuration that containerd makes of all its files, in its latest version."""
    return tomllib.loads(server.sh("containerd config migrate 2>/dev/null"))["plugins"]


def runtimes(server: Server) -> dict[str, Any]:
    return merged(server)["io.containerd.cri.v1.runtime"]["containerd"]


def process(server: Server) -> str:
    """Another one after each restart."""
    return server.sh("systemctl show --property MainPID containerd")


def installed(server: Server, *names: str) -> dict[str, str]:
    rows = server.sh("dpkg-query --show --showformat '${Package} ${db:Status-Status} ${Version}\n'").splitlines()
    versions = {name: version for name, status, version in map(str.split, rows) if status == "installed"}
    return {name: versions[name] for name in names if name in versions}


@contextmanager
def container(server: Server, *flags: str, namespace: str = "k8s.io") -> Iterator[str]:
    """A container that runs, of nothing but the C library and `sleep`. Gives the words that run something in it."""
    programs = server.sh(
        "ldd /usr/bin/sleep /usr/bin/nvidia-smi | grep -o '/[^ :]*' | grep -v nvidia | sort -u"
    ).split()
    mounts = " ".join(
        f"--mount type=bind,src={path},dst={path},options=rbind:ro" for path in [*programs, "/usr/bin/sleep"]
    )
    words = f"ctr -n {namespace} run --detach --rootfs {' '.join(flags)} {mounts} /run/box box /usr/bin/sleep 900"
    server.sh(f"mkdir -p /run/box/etc; {words}")
    try:
        yield f"ctr -n {namespace} task exec --exec-id asked box"
    finally:
        server.sh(f"ctr -n {namespace} task rm --force box; ctr -n {namespace} container rm box; rm -r /run/box")


def test_four_packages_stay_at_one_version(server: Server) -> None:
    """Their dependencies on each other are loose: NVIDIA/nvidia-container-toolkit#59, #1091."""
    packages = [*TOOLKIT, "containerd.io"]
    assert len(set(installed(server, *TOOLKIT).values())) == 1
    assert set(installed(server, *packages)) == set(packages)
    server.sh("mkdir -p /run/newer")
    for name in packages:
        server.sh(f"mv {package(server, name, '99.0-1')} /run/newer/")
    server.sh(
        "cd /run/newer; for package in *.deb; do dpkg-deb --field $package; echo Filename: ./$package; "
        "echo Size: $(stat -c %s $package); echo SHA256: $(sha256sum <$package | cut -d' ' -f1); echo; done >Packages"
    )
    server.sh(
        "echo 'deb [trusted=yes] file:/run/newer ./' >/etc/apt/sources.list.d/newer.list; apt-get update >/dev/null"
    )
    pins = "/etc/apt/preferences.d/kubegpu-docker.pref /etc/apt/preferences.d/kubegpu-nvidia-container-toolkit.pref"
    try:
        pinned = server.sh("apt-get --simulate dist-upgrade")
        server.sh(f"mkdir /root/pins; mv {pins} /root/pins")
        free = server.sh("apt-get --simulate dist-upgrade")
    finally:
        server.sh(
            "mv /root/pins/* /etc/apt/preferences.d/; rmdir /root/pins; "
            "rm -r /run/newer /etc/apt/sources.list.d/newer.list; apt-get update >/dev/null"
        )

    assert "Inst " not in pinned
    assert set(re.findall(r"^Inst (\S+)", free, re.MULTILINE)) == set(packages)


def test_a_container_that_shows_no_gpu_is_told(runtime: Server) -> None:
    """A node that is Ready and gives no GPU is what users report; nothing but a container shows it."""
    runtime.sh("mv /usr/bin/nvidia-container-runtime /root/")
    try:
        broken = role(tags="nvidia_container_toolkit_verify")
        unasked = role(tags="nvidia_container_toolkit_verify", nvidia_container_toolkit_verify_container=False)
    finally:
        runtime.sh("mv /root/nvidia-container-runtime /usr/bin/")
    whole = role(tags="nvidia_container_toolkit_verify")

    assert not broken.succeeded
    assert f"nvidia-smi in a container showed 0 of {GPUS} GPUs" in broken.text
    assert unasked.succeeded
    assert (whole.succeeded, whole.changed) == (True, 0)
    assert "kubegpu" not in runtime.sh("ctr namespaces list; ls /run")


def test_settings_are_written_in_the_version_of_somebody_s_main_file(runtime: Server) -> None:
    """Overwritten by others' playbooks: kubernetes-sigs/kubespray#12277. One import is added and taken back."""
    with main_file(runtime, THEIRS):
        done = role(containerd_config=IN_VERSION_2)
        again = role(containerd_config=IN_VERSION_2)
        text, drop_ins, plugins = read(runtime, MAIN), read_all(runtime), merged(runtime)
        gone = role(**GONE)
        left = read(runtime, MAIN)
        kept = installed(runtime, "containerd.io", *TOOLKIT)
        running = runtime.host.service("containerd").is_running

    assert (done.succeeded, again.changed) == (True, 0)
    assert text.partition("\n")[2] == THEIRS
    assert {name: tomllib.loads(content)["version"] for name, content in drop_ins.items()} == dict.fromkeys(OURS, 2)
    assert plugins["io.containerd.cri.v1.runtime"]["max_container_log_line_size"] == 777
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"].startswith("registry.k8s.io/pause:")
    assert "nvidia" in plugins["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert gone.succeeded
    assert f"{MAIN} has existing settings" in gone.text
    assert left == THEIRS
    assert set(kept) == {"containerd.io"}
    assert running


def test_a_main_file_of_another_version_than_a_drop_in_is_refused(server: Server) -> None:
    """containerd did not start, or lost the main file: NVIDIA/cloud-native-stack#142, containerd/containerd#12891.

    The one of the lab migrates each file before it merges them (containerd/containerd#13939). Others do not.
    """
    with main_file(server, f'imports = ["{DROP_INS}/*.toml"]\n{THEIRS}'):
        alone = merged(server)["io.containerd.cri.v1.runtime"]["max_container_log_line_size"]
        write(server, f"{DROP_INS}/99-theirs.toml", "version = 3\n")
        mixed = merged(server)["io.containerd.cri.v1.runtime"]["max_container_log_line_size"]
        refused = configure(containerd_config=IN_VERSION_2)
        written = server.sh(f"ls {DROP_INS}")

    assert (alone, mixed) == (777, 777)
    assert not refused.succeeded
    assert f"has {MAIN} of version 2, and {DROP_INS}/99-theirs.toml of a later one" in refused.text
    assert (refused.changed, written) == (0, "99-theirs.toml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version = \n", f"has {MAIN} with an error: Invalid value"),
        ("root = '/opt/images'\n", f"has {MAIN} of version 1"),
        ("version = 3\ndisabled_plugins = ['cri', 'x']\n", f"has cri among disabled_plugins of {MAIN}"),
        ("version = 3\nimports = '/opt/a.toml'\nroot = '/opt'\n", "imports = '/opt/a.toml' cannot be extended"),
        (THEIRS, "containerd_config has io.containerd.cri.v1."),
    ],
)
def test_a_main_file_that_cannot_be_extended_is_left_alone(server: Server, text: str, reason: str) -> None:
    """Overwritten without a look: NVIDIA/cloud-native-stack makes it anew with `containerd config default`."""
    with main_file(server, text):
        refused = configure()
        left = read(server, MAIN)

    assert not refused.succeeded
    assert "runtime: node1 has " in refused.text
    assert reason in refused.text
    assert (refused.changed, left) == (0, text)


def test_containerd_1_is_refused(server: Server) -> None:
    """There a drop-in replaces a plugin's settings as a whole: containerd/containerd#5837, #7982, #11066."""
    server.sh("printf '#!/bin/sh\necho version = 2\n' >/usr/local/sbin/containerd; chmod +x /usr/local/sbin/containerd")
    try:
        with main_file(server, THEIRS):
            refused = configure(containerd_config=IN_VERSION_2)
    finally:
        server.sh("rm /usr/local/sbin/containerd")

    assert not refused.succeeded
    assert "node1 has containerd 1" in refused.text
    assert refused.changed == 0


def test_cgroups_of_both_runtimes_are_managed_alike(runtime: Server) -> None:
    """Set where containerd 2 does not look, or not at all: geerlingguy/ansible-role-containerd#23, #24."""
    assert configure_all(containerd_systemd_cgroup=True).succeeded
    seen = {name: row["options"]["SystemdCgroup"] for name, row in runtimes(runtime)["runtimes"].items()}

    assert seen == {"runc": True, "nvidia": True}


def configure_all(**options: Any) -> Run:
    return role(tags="containerd_configure,nvidia_container_toolkit_configure", **options)


def test_nvidia_is_the_default_only_if_asked_for(runtime: Server) -> None:
    """kubernetes-sigs/kubespray#12278: RuntimeClass, not a default for all."""
    before = runtimes(runtime)["default_runtime_name"]
    asked = role("--diff", nvidia_container_toolkit_default_runtime=True)
    default = runtimes(runtime)["default_runtime_name"]
    assert role().succeeded

    assert (before, default) == ("runc", "nvidia")
    assert '+default_runtime_name = "nvidia"' in asked.output
    assert runtimes(runtime)["default_runtime_name"] == "runc"


def test_a_run_that_was_interrupted_owes_a_restart(runtime: Server) -> None:
    """Handlers of a play that fails never run."""
    before = process(runtime)
    runtime.sh("touch /etc/containerd/certs.d/a-file")
    options = {"containerd_sandbox_image": "registry.k8s.io/pause:3.9"}
    failed = configure(**options, containerd_mirrored_registries=["a-file"])
    runtime.sh("rm /etc/containerd/certs.d/a-file")
    assert not failed.succeeded
    assert failed.changed == 1
    assert process(runtime) == before

    assert configure(**options).changed == 1
    assert process(runtime) != before
    assert configure(**options).changed == 0


def test_a_pod_network_that_came_by_renaming_is_read(runtime: Server) -> None:
    """containerd's watcher passes over files that are created: a run that ended there left the node NotReady."""
    network = '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "loopback"}]}\n'
    runtime.sh("mkdir -p /etc/cni/net.d")
    runtime.sh("systemctl restart containerd")
    before = process(runtime)
    write(runtime, "/etc/cni/net.d/.new", network)
    runtime.sh("mv /etc/cni/net.d/.new /etc/cni/net.d/10-kubegpu.conflist")
    try:
        first, again = configure(), configure()
        after = process(runtime)
        said = runtime.sh(f"journalctl --output cat _PID={after.partition('=')[2]}")
    finally:
        runtime.sh("rm /etc/cni/net.d/10-kubegpu.conflist")

    assert (first.changed, again.changed) == (1, 0)
    assert after != before
    assert "no network config found" not in said


def test_containers_keep_their_gpus(runtime: Server) -> None:
    """Lost with a daemon-reload where a hook brought them: NVIDIA/nvidia-container-toolkit#48, NVIDIA/deepops#1019.

    A device of the container's own specification is one that systemd and runc know of.
    """
    with container(runtime, "--runc-binary /usr/bin/nvidia-container-runtime --device nvidia.com/gpu=0") as inside:
        rules = json.loads(runtime.sh("ctr -n k8s.io container info box"))["Spec"]["linux"]["resources"]["devices"]
        before = runtime.sh(f"{inside} /usr/bin/nvidia-smi -L")
        restarted = configure(containerd_sandbox_image="registry.k8s.io/pause:3.9")
        runtime.sh("systemctl daemon-reload")
        after = runtime.sh(f"{inside} /usr/bin/nvidia-smi -L")

    assert {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rwm"} in rules
    assert restarted.changed == 2
    assert "daemon" not in restarted.output
    assert after == before
    assert len(after.splitlines()) == 1


def test_devices_follow_the_driver(runtime: Server) -> None:
    """A specification of another driver mounts files that are gone. The file is what an earlier driver left."""
    runtime.sh(f"systemctl stop nvidia-cdi-refresh.path; sed -i s/{DRIVER}/{OLDER_DRIVER}/ {SPEC}")

    done = role(tags="nvidia_container_toolkit")

    assert done.succeeded
    assert f"libnvidia-ml.so.{DRIVER}" in read(runtime, SPEC)
    assert OLDER_DRIVER not in read(runtime, SPEC)
    assert runtime.host.service("nvidia-cdi-refresh.path").is_running
    assert runtime.host.service("nvidia-cdi-refresh.path").is_enabled


def test_a_new_kernel_module_renews_the_specification(runtime: Server) -> None:
    """By the toolkit's own units, which look at depmod's list; a change of libraries alone does not start them."""
    runtime.sh(f"rm {SPEC}; echo >>/lib/modules/$(uname -r)/modules.dep")

    runtime.sh(f"timeout 20 sh -c 'until test -e {SPEC}; do sleep 0.1; done'")

    assert f"libnvidia-ml.so.{DRIVER}" in read(runtime, SPEC)


def test_devices_that_went_missing_come_back(runtime: Server) -> None:
    """A GPU that was put in after the specification was written is not in it."""
    runtime.sh(f"sed -i '/name: \"7\"/,/permissions/d' {SPEC}")
    assert "nvidia.com/gpu=7\n" not in runtime.sh("nvidia-ctk cdi list 2>/dev/null")

    assert role(tags="nvidia_container_toolkit").changed == 1
    assert "nvidia.com/gpu=7\n" in runtime.sh("nvidia-ctk cdi list 2>/dev/null")


def test_containerd_stays_where_docker_needs_it(runtime: Server) -> None:
    """apt would take docker-ce along, which depends on containerd.io."""
    needs = package(runtime, "docker-ce", "5:29.0-1", "Depends: containerd.io\n")
    runtime.sh(f"dpkg --install {needs}; rm {needs}")
    try:
        gone = role(**GONE)
        kept = installed(runtime, "containerd.io", "docker-ce")
        running, text = runtime.host.service("containerd").is_running, read(runtime, MAIN)
        files = runtime.sh("find /etc/containerd /etc/apt -name '*kubegpu*' -not -name '*cuda*'; ls /etc/containerd")
        again = role(**GONE)
    finally:
        runtime.sh("dpkg --purge docker-ce")

    assert gone.succeeded
    assert "docker-ce would be removed with it" in gone.text
    assert set(kept) == {"containerd.io", "docker-ce"}
    assert running
    assert 'disabled_plugins = ["cri"]' in text  # as the package had it
    assert files == "config.toml"
    assert again.changed == 0


def test_containerd_stays_where_it_was_before(bare: Server) -> None:
    """Somebody's, by the same package: the pin, which comes at the first run, does not make it ours."""
    assert role().succeeded
    bare.sh("find /etc/apt -name '*kubegpu-docker*' -delete; apt-get update >/dev/null")  # now without our pin
    assert role().succeeded
    would = role("--check", **GONE)
    gone = role(**GONE)
    kept, running = installed(bare, "containerd.io", *TOOLKIT), bare.host.service("containerd").is_running
    left = bare.sh("find /etc/apt -name '*kubegpu-docker*'; ls -d /etc/containerd /var/lib/containerd/*content*")
    again = role(**GONE)
    bare.sh("apt-get purge --yes --quiet containerd.io")

    assert "containerd.io was installed before this collection" in would.text
    assert gone.succeeded
    assert "containerd.io was installed before this collection" in gone.text
    assert set(kept) == {"containerd.io"}
    assert running
    assert left.splitlines() == ["/etc/containerd", "/var/lib/containerd/io.containerd.content.v1.content"]
    assert again.changed == 0


def test_a_newer_containerd_is_not_brought_down(bare: Server) -> None:
    """Docker runs by containerd.io and takes any from 1.7.27 on, so apt would say nothing."""
    newer = package(bare, "containerd.io", "99.0-1")
    bare.sh(f"dpkg --install {newer}; rm {newer}")
    refused = role(tags="containerd")
    still = installed(bare, "containerd.io")
    bare.sh("dpkg --purge containerd.io")

    assert not refused.succeeded
    assert "node1 has containerd.io 99.0-1, newer than" in refused.text
    assert 'set containerd_version: "99.0-*" to keep it' in refused.text
    assert (refused.changed, still) == (0, {"containerd.io": "99.0-1"})


def test_containerd_stays_where_others_run_containers(runtime: Server) -> None:
    """Their images and containers would be deleted."""
    with container(runtime, namespace="moby") as inside:
        gone = role(**GONE)
        still = runtime.sh(f"{inside} /usr/bin/sleep 0; ctr -n moby task list")

    assert gone.succeeded
    assert "containers run in its namespaces moby" in gone.text
    assert "RUNNING" in still


def test_another_containerd_is_not_replaced(bare: Server) -> None:
    """containerd.io conflicts with the distribution's package, and docker.io would go with that."""
    bare.sh("touch /usr/local/bin/containerd")
    beside = role()
    other = package(bare, "containerd", "1.7.24")
    bare.sh(f"rm /usr/local/bin/containerd; dpkg --install {other}; rm {other}")
    instead = role()
    still = installed(bare, "containerd", "containerd.io")
    bare.sh("dpkg --purge containerd")

    assert (beside.succeeded, beside.changed) == (False, 0)
    assert "runtime that is not managed by this collection (/usr/local/bin/containerd)" in beside.text
    assert (instead.succeeded, instead.changed) == (False, 0)
    assert "the distribution's package containerd" in instead.text
    assert still == {"containerd": "1.7.24"}


def test_absent_leaves_the_server_as_it_was(bare: Server) -> None:
    """Uninstallation leaves files behind: k3s-io/k3s-ansible#26, NVIDIA/aicr#1553."""
    skipped = ("/var/lib/apt/*", "/var/lib/dpkg/*", "/var/lib/systemd/*", "/run/*/*", "*/__pycache__*")
    files = "find /etc /usr /opt /var/lib /run -xdev " + " ".join(f"-not -path '{path}'" for path in skipped)
    look = files + " | sort; dpkg-query --show --showformat '${Package}\\\n'"
    before = bare.sh(look)
    assert role().succeeded
    would = role("--check", **GONE)
    there = installed(bare, "containerd.io", *TOOLKIT)

    gone = role(**GONE)

    assert would.succeeded
    assert set(there) == {"containerd.io", *TOOLKIT}
    assert gone.succeeded
    assert bare.sh(look) == before
    assert role(**GONE).changed == 0


def test_images_come_through_a_proxy_as_long_as_there_is_one(runtime: Server) -> None:
    proxied = configure(kubegpu_proxy="http://user:pass%40word@127.0.0.1:3128", kubegpu_no_proxy=[".corp"])
    through, again = (
        environment(runtime),
        configure(kubegpu_proxy="http://user:pass%40word@127.0.0.1:3128", kubegpu_no_proxy=[".corp"]),
    )
    ended = configure()

    assert proxied.succeeded
    assert "pass%40word" not in proxied.output
    assert "HTTPS_PROXY=http://user:pass%40word@127.0.0.1:3128" in through
    assert ",.corp" in through
    assert again.changed == 0
    assert ended.succeeded
    assert "PROXY" not in environment(runtime)


def test_a_mirror_that_is_given_up_goes_and_somebodys_stays(runtime: Server) -> None:
    registries = "/etc/containerd/certs.d"
    write(runtime, f"{registries}/ghcr.io/hosts.toml", 'server = "https://theirs"\n')

    given_up = configure(kubegpu_image_mirror="")

    assert given_up.succeeded
    assert runtime.sh(f"find {registries} -name hosts.toml") == f"{registries}/ghcr.io/hosts.toml"
    assert configure(kubegpu_image_mirror="").changed == 0
