"""Which helm it is, and the digits that its archive is checked against."""

from __future__ import annotations

import json
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT

PIN = yaml.safe_load((ROOT / "roles/_common/defaults/main/versions.yml").read_text())["kubegpu_pinned_versions"]
HELM = PIN["archives"]["helm"]
BESIDE = "sha256:https://get.helm.sh/helm-v4.9.0-linux-amd64.tar.gz.sha256sum"
OWN = "0" * 64


def checksum(folder: Path, **variables: Any) -> str:
    """What the role would check the archive against; a helm that is there already is left alone."""
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.helm", "public": True}}
    shown = {"ansible.builtin.debug": {"msg": "checked: {{ helm_checksum }}"}}
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [role, shown]}]
    (folder / "play.yml").write_text(json.dumps(play))
    known = {"kubegpu_helm_binary": sys.executable, "helm_platform": "linux-amd64", **variables}
    words = ("-i", "localhost,", "play.yml", "-e", json.dumps(known))
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.partition("checked: ")[2].split()[0].strip('"')


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({}, f"sha256:{HELM['sha256']['linux-amd64']}"),
        ({"version": "v4.9.0"}, BESIDE),
        ({"version": "v4.9.0", "sha256": {"linux-amd64": OWN}}, f"sha256:{OWN}"),
    ],
    ids=["pinned", "another_release", "another_release_with_its_digits"],
)
def test_the_archive_is_checked_against_the_digits_of_its_release(
    tmp_path: Path, override: dict[str, Any], expected: str
) -> None:
    assert checksum(tmp_path, kubegpu_versions_override={"archives": {"helm": override}}) == expected


class Controller:
    """With programs in its PATH, each of which prints a version and notes that it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, folder / "bin"
        self.own = folder / f"data/helm-{HELM['version']}"
        self.programs.mkdir()
        self.own.parent.mkdir()

    def add(self, name: str, prints: str, code: int = 0) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\ntouch {self.folder}/asked\necho '{prints}'\nexit {code}\n")
        (self.programs / name).chmod(0o755)

    def was_asked(self) -> bool:
        return (self.folder / "asked").exists()

    def finds(self, role: str = "_common", **variables: Any) -> str:
        """The helm that is taken, or what is said instead."""
        include = {"name": f"kubegpu.autoscale.{role}", "public": True}
        include |= {"tasks_from": "helm"} if role == "_common" else {}
        tasks = [
            {"ansible.builtin.include_role": include},
            {
                "ansible.builtin.debug": {
                    "msg": "it is {{ _common_helm }} of ours: {{ _common_helm == _common_helm_own }}"
                }
            },
        ]
        play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
        (self.folder / "play.yml").write_text(json.dumps(play))
        known = {"kubegpu_helm_folder": str(self.own.parent), **variables}
        done = ansible_playbook(
            "-i", "localhost,", "play.yml", "-e", json.dumps(known), cwd=self.folder,
            env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "PATH": f"{self.programs}:/usr/bin:/bin"},
        )  # fmt: skip
        return " ".join(done.stdout.partition("it is " if done.returncode == 0 else "fatal: ")[2].split())


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


@pytest.mark.parametrize(
    ("prints", "code", "is_taken"),
    [
        ("v4.0.0+g99cd196", 0, True),
        ("v3.21.4+g825e86f", 0, False),
        ("v5.0.1+g12500dd", 0, False),
        ("v4.3.0+g825e86f", 1, True),
        ("not a version", 0, False),
    ],
    ids=["the first of its major version", "an older major version", "a newer one", "warns", "not helm"],
)
def test_helm_of_the_path_is_taken_where_it_fits(
    controller: Controller, prints: str, code: int, is_taken: bool
) -> None:
    controller.add("helm", prints, code)
    taken = controller.programs / "helm" if is_taken else controller.own

    assert controller.finds().startswith(f"{taken} of ours")


@pytest.mark.parametrize(("prints", "is_taken"), [("v3.13.0+g825e86f", True), ("v3.12.3+g3a31588", False)])
def test_a_helm_3_of_the_path_is_taken_if_one_with_labels_is_pinned(
    controller: Controller, prints: str, is_taken: bool
) -> None:
    controller.add("helm", prints)
    pinned = {"archives": {"helm": {"version": "v3.21.4"}}}

    found = controller.finds(kubegpu_versions_override=pinned)
    assert found.startswith(f"{controller.programs}/helm of ours") is is_taken


def test_without_one_ours_is_taken(controller: Controller) -> None:
    assert controller.finds().startswith(f"{controller.own} of ours: True")


def test_ours_is_taken_before_that_of_the_path_which_is_not_asked(controller: Controller) -> None:
    """Another release in the PATH does not change what a cluster is installed by."""
    controller.add("helm", "v4.9.0+g825e86f")
    controller.own.touch()

    assert controller.finds().startswith(f"{controller.own} of ours: True")
    assert not controller.was_asked()


def test_helm_may_be_named_as_the_path_has_it(controller: Controller) -> None:
    """Whatever its release: who names it knows it."""
    controller.add("helm3", "v3.2.1+g825e86f")

    for role in ("_common", "helm"):
        assert controller.finds(role, kubegpu_helm_binary="helm3").startswith(f"{controller.programs}/helm3 of ours")
    assert not controller.was_asked()


def test_one_may_be_named_by_a_relative_path_and_by_a_link(controller: Controller) -> None:
    """Of snap every program is a link to one file, which goes by the name that it is called by."""
    controller.add("snap", "v4.3.0+g825e86f")
    (controller.programs / "helm3").symlink_to("snap")

    taken = f"{controller.programs}/helm3 of ours"
    assert controller.finds(kubegpu_helm_binary="bin/helm3").startswith(taken)


def test_a_name_that_the_path_does_not_have_is_refused(controller: Controller) -> None:
    assert "no folder of the PATH has helm3. Nothing was changed." in controller.finds(
        "helm", kubegpu_helm_binary="helm3"
    )


def test_its_archive_is_unpacked_by_the_tar_of_a_mac(controller: Controller) -> None:
    """Ansible's unarchive takes that of GNU alone."""
    says = "[ \"$1\" != --version ] || { echo 'bsdtar 3.5.3 - libarchive 3.7.4'; exit 0; }"
    (controller.programs / "tar").write_text(f'#!/bin/sh\n{says}\nexec /bin/tar "$@"\n')
    (controller.programs / "tar").chmod(0o755)
    (controller.folder / "helm").write_text("#!/bin/sh\n")
    archive = controller.folder / f"mirror/get.helm.sh/helm-{HELM['version']}-linux-amd64.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(controller.folder / "helm", "linux-amd64/helm")
    digits = sha256(archive.read_bytes()).hexdigest()
    mirror = {"kubegpu_chart_mirror": f"file://{controller.folder}/mirror", "helm_platform": "linux-amd64"}

    assert controller.finds("helm", helm_checksum=f"sha256:{digits}", **mirror).startswith(
        f"{controller.own} of ours: True"
    )
    assert controller.own.read_text() == "#!/bin/sh\n"
