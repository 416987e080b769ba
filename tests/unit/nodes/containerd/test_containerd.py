"""What the role containerd does: which release it installs, what it writes beside its drop-in, and what it removes."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.containerd.checks import AFTER, BEFORE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from planned import CONTAINERD_PATHS as PATHS
from planned import HOST, entry, found, plan_of, said, unseen

from lab.versions import versions

PIN = versions()["packages"]["containerd.io"]
CERTS = "/etc/containerd/certs.d"
MIRROR = "http://mirror.example:5000/images/"
OURS = f"""# Written once by kubegpu.autoscale; settings are in the files below {PATHS["drop_ins"]}.
version = 3
imports = ["{PATHS["drop_ins"]}/*.toml"]
"""
WITH_SETTINGS = 'version = 3\nroot = "/data"\n'


def plan(survey: dict[str, Any] | None = None, host: Host = HOST, **options: Any) -> dict[str, Any]:
    given = {
        "sandbox_image": "registry.k8s.io/pause:3.10",
        "mirrored_registries": ["docker.io", "ghcr.io"],
        **options,
    }
    return plan_of("containerd", {"paths": PATHS, **(survey or {})}, host, **given)


def removed(survey: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return plan(survey, state="absent", **options)


def installed(version: str, name: str = "containerd.io", state: str = "installed") -> dict[str, Any]:
    return {"packages": said(f"{name} {state} {version}", rc=1)}


def slurp(text: str) -> dict[str, str]:
    return {"content": b64encode(text.encode()).decode()}


MEMBER = replace(HOST, clusters=("/etc/kubernetes/kubelet.conf",))


@pytest.mark.parametrize(
    ("host", "version", "options", "refused"),
    [
        (MEMBER, "2.1.5-1", {}, True),
        (MEMBER, "2.1.5-1", {"upgrade_ok": True}, False),
        (MEMBER, "2.1.5-1", {"version": "2.1.5-*"}, False),
        (MEMBER, PIN.partition("-")[0] + "-9", {}, False),
        (HOST, "2.1.5-1", {}, False),
    ],
)
def test_a_node_in_service_keeps_its_release(host: Host, version: str, options: dict[str, Any], refused: bool) -> None:
    made = plan(installed(version), host, **options)

    assert ["`ansible-playbook kubegpu.autoscale.maintain`" in text for text in made["refused"]] == [True] * refused
    assert made["steps"]["upgrade"] is (version == "2.1.5-1" and "version" not in options)


def test_the_package_is_of_dockers_repository_at_one_version() -> None:
    [source] = plan()["packages"]["sources"]

    assert (source["name"], source["packages"], source["version"]) == ("docker", ["containerd.io"], PIN)
    assert (source["url"], source["suite"]) == ("https://download.docker.com/linux/debian", "bookworm")
    assert removed()["packages"]["sources"] == []


@pytest.mark.parametrize(
    ("version", "is_any"), [("2.1.4", "2.1.4-*"), (2.3, "2.3-*"), ("2.1.4-1~debian", "2.1.4-1~debian")]
)
def test_a_release_alone_is_any_of_its_revisions(version: str | float, is_any: str) -> None:
    assert plan(version=version)["packages"]["apt"]["version"] == is_any


def test_a_newer_release_is_not_brought_down() -> None:
    [refusal] = plan(installed("99.0-1"))["refused"]

    assert f"runtime: gpu1 has containerd.io 99.0-1, newer than {PIN} of the version file." in refusal
    assert (
        f'Nothing was changed. Next: set containerd_version: "99.0-*" to keep it, or containerd_version: "{PIN}"'
        in refusal
    )


RUNTIME = {"runtimes": ["/usr/local/bin/containerd"]}


@pytest.mark.parametrize(
    ("survey", "named"),
    [
        (RUNTIME, "/usr/local/bin/containerd"),
        (installed("1.7.24", "containerd"), "the distribution's package containerd"),
        (
            RUNTIME | installed("1.7.24", "containerd"),
            "/usr/local/bin/containerd, the distribution's package containerd",
        ),
    ],
)
def test_another_runtime_is_not_replaced(survey: dict[str, Any], named: str) -> None:
    [refusal] = plan(survey)["refused"]
    assert f"gpu1 has a container runtime that is not managed by this collection ({named})." in refusal


@pytest.mark.parametrize(
    ("clusters", "ids"), [((), ["CONTAINERD_NEWER_INSTALLED"]), (("/etc/kubernetes/kubelet.conf",), [])]
)
def test_the_doctor_leaves_the_runtime_of_a_node_alone(clusters: tuple[str, ...], ids: list[str]) -> None:
    planned_there = plan(installed("99.0-1"), replace(HOST, clusters=clusters))

    assert planned_there["hop"] == "runtime"
    assert [finding["id"] for finding in planned_there["findings"]] == ids
    assert len(planned_there["refused"]) == 1


ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "asked for": (installed("99.0-1"), {"version": "2.1.4"}),
    "older": (installed("1.7.27-1"), {}),
    "the same, a later build": (installed(PIN.partition("-")[0] + "-9"), {}),
    "removed": (installed("99.0-1", state="config-files"), {}),
    "of the distribution, removed": (installed("1.7", "containerd", "config-files"), {}),
    "on the way out": (installed("99.0-1") | RUNTIME, {"state": "absent"}),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_asked_for_and_what_goes_up_comes(name: str) -> None:
    survey, options = ALLOWED[name]
    assert plan(survey, **options)["refused"] == []


def test_a_mirror_is_written_for_each_registry() -> None:
    files = plan(image_mirror=MIRROR)["files"]["mirrors"]

    assert [file["path"] for file in files] == [f"{CERTS}/docker.io/hosts.toml", f"{CERTS}/ghcr.io/hosts.toml"]
    assert files[0]["content"].splitlines() == [
        "# Written by kubegpu.autoscale",
        'server = "http://mirror.example:5000/images/v2/docker.io"',
        'capabilities = ["pull", "resolve"]',
        "override_path = true",
    ]


def test_a_mirror_that_is_as_it_should_be_is_left() -> None:
    first, second = plan(image_mirror=MIRROR)["files"]["mirrors"]
    seen = {"found": {"files": [entry(first["path"], first["content"]), entry(second["path"], "of another mirror")]}}
    made = plan(seen, image_mirror=MIRROR)["files"]

    assert made["mirrors"] == [second]
    assert made["mirrors_unwanted"] == []


@pytest.mark.parametrize(
    ("options", "goes"), [({}, True), ({"image_mirror": MIRROR}, False), ({"state": "absent"}, True)]
)
def test_a_mirror_that_is_given_up_goes(options: dict[str, Any], goes: bool) -> None:
    path = f"{CERTS}/docker.io/hosts.toml"
    made = plan({"found": found(path, f"{CERTS}/quay.io/hosts.toml")}, **options)

    assert made["files"]["mirrors_unwanted"] == ([path] if goes else [])


@pytest.mark.parametrize("registries", ["docker.io,quay.io", ["docker.io", "quay.io"]])
def test_registries_may_be_a_text_with_commas(registries: Any) -> None:
    made = plan(mirrored_registries=registries, image_mirror=MIRROR, no_proxy=".corp,10.0.0.0/8")

    assert [file["path"].split("/")[-2] for file in made["files"]["mirrors"]] == ["docker.io", "quay.io"]
    assert made["proxy"]["bypass"] == ["localhost", "127.0.0.1", "mirror.example", ".corp", "10.0.0.0/8"]


PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("options", "is_there", "steps"),
    [
        ({"proxy": PROXY}, False, (True, False)),
        ({"proxy": PROXY}, True, (True, False)),
        ({}, True, (False, True)),
        ({}, False, (False, False)),
        ({"proxy": PROXY, "state": "absent"}, True, (False, True)),
    ],
)
def test_the_proxy_is_there_as_long_as_it_is_wanted(
    options: dict[str, Any], is_there: bool, steps: tuple[bool, bool]
) -> None:
    made = plan({"found": found(*([PATHS["proxy"]] if is_there else []))}, **options)["steps"]
    assert (made["set_proxy"], made["remove_proxy"]) == steps


@pytest.mark.parametrize(("proxy", "has_login"), [("http://user:word@proxy:3128", True), (PROXY, False)])
def test_the_login_of_a_proxy_is_not_in_the_plan(proxy: str, has_login: bool) -> None:
    made = plan(proxy=proxy)
    assert made["proxy"]["has_login"] is has_login
    assert "word" not in str(made)


@pytest.mark.parametrize(("version", "key"), [("2", "bin_dir"), ("3", "bin_dirs")])
def test_its_settings_are_in_the_words_of_each_version(version: str, key: str) -> None:
    plugins = plan(systemd_cgroup="false")["drop_in"]["settings"][version]["plugins"]
    runtime = plugins["io.containerd.grpc.v1.cri" if version == "2" else "io.containerd.cri.v1.runtime"]
    images = plugins["io.containerd.grpc.v1.cri" if version == "2" else "io.containerd.cri.v1.images"]

    assert runtime["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False}
    assert key in runtime["cni"]
    assert images["registry"] == {"config_path": CERTS}
    assert "registry.k8s.io/pause:3.10" in str(images)


ROW = "io.containerd.grpc.v1                    cri                      linux/amd64    {}"


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([ROW.format("ok")], ""),
        ([ROW.format("error")], ROW.format("error")),
        (["io.containerd.snapshotter.v1 native linux/amd64 ok"], "not loaded"),
        ([], "not loaded"),
    ],
)
def test_the_interface_of_kubernetes_is_offered(rows: list[str], seen: str) -> None:
    broken = plan({"plugins": said(*rows)})["broken"]
    assert [f"plugin cri: {seen}." in sentence for sentence in broken] == ([True] if seen else [])


MARKED = {"pin": {"exists": True}}
TASKS = "/run/containerd/io.containerd.runtime.v2.task"
# What is found at the removal, and the reason for which containerd stays.
USERS: dict[str, tuple[dict[str, Any], str]] = {
    "installed before": (
        MARKED | {"before": slurp("# Written\ncontainerd.io\n")},
        "containerd.io was installed before",
    ),
    "another package": (
        {"purge": said("Purg docker-ce [5:29]", "Purg containerd.io [2.1]")},
        "docker-ce would be removed",
    ),
    "containers": (
        {"tasks": found(f"{TASKS}/moby", f"{TASKS}/moby/box")},
        "containers run in its namespaces moby, not",
    ),
    "settings": ({"main": slurp(WITH_SETTINGS)}, "/etc/containerd/config.toml has existing settings"),
    "a file that cannot be read": ({"main": slurp("version = ")}, "/etc/containerd/config.toml has existing settings"),
}


@pytest.mark.parametrize("name", USERS)
def test_containerd_stays_where_something_needs_it(name: str) -> None:
    survey, reason = USERS[name]
    made = removed(survey)

    assert reason in made["notices"][0]
    assert not made["steps"]["purge"]
    assert not made["steps"]["remove_data"]
    assert "/etc/cni" not in made["files"]["folders"]


FREE: dict[str, dict[str, Any]] = {
    "bare": {},
    "no record": {"before": slurp("containerd.io\n")},  # the pin is not there, so the record is of nobody
    "alone": {"purge": said("Purg containerd.io [2.1]")},
    "pods": {"tasks": found(f"{TASKS}/k8s.io/pod", f"{TASKS}/kubegpu/box")},
    "packaged": {"main": slurp('# comments\ndisabled_plugins = ["cri"]\n')},
    "ours": {"main": slurp(OURS)},
}


@pytest.mark.parametrize("name", FREE)
def test_otherwise_it_goes_with_its_data(name: str) -> None:
    made = removed(FREE[name])

    assert made["notices"] == []
    assert made["steps"]["purge"]
    assert made["steps"]["remove_data"]
    assert {"/etc/cni", "/etc/containerd", f"{CERTS}/docker.io"} <= {*made["files"]["folders"]}


@pytest.mark.parametrize(
    ("survey", "stays"),
    [(MARKED, True), ({}, True), (MARKED | {"check_mode": True}, False), ({"check_mode": True}, True)],
)
def test_images_of_a_containerd_that_is_left_stay(survey: dict[str, Any], stays: bool) -> None:
    """One of a distribution, of Docker or by hand. Check mode does not remove the one of this collection."""
    made = removed(survey | {"programs": found("/usr/bin/containerd")})

    assert made["steps"]["remove_data"] is not stays
    assert [("this collection did not install /usr/bin/containerd" in text) for text in made["notices"]] == [
        True
    ] * stays


def test_each_finding_happens() -> None:
    sentences = [
        *plan(RUNTIME)["refused"],
        *plan(installed("99.0-1"))["refused"],
        *plan(installed("2.1.5-1"), MEMBER)["refused"],
        *plan({"plugins": said()})["broken"],
        *removed({"programs": found("/usr/bin/containerd")})["notices"],
    ]
    assert unseen((*BEFORE, *AFTER), sentences) == []
    assert plan({"plugins": said(ROW.format("ok"))})["notices"] == []
