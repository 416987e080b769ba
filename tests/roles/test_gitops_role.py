"""The playbook gitops on a folder: what it writes, keeps, removes and rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbook import changed, run_playbook
from role_values import RoleValues

CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}


class Folder:
    def __init__(self, folder: Path) -> None:
        self._folder, self.path = folder, folder / "gpus"

    def write(self, **variables: Any) -> tuple[int, str]:
        """Tasks that changed something, or what was said of a refusal."""
        place = {"gitops_folder": str(self.path), "gitops_path": "./clusters/gpus/"}
        few = {"gitops_roles": ["gpu_autoscaling"], "gpu_autoscaling_autoscalers": [CHAT]}
        done = run_playbook(self._folder, "kubegpu.autoscale.gitops", {**place, **few, **variables})
        assert done.returncode in (0, 2)
        return (changed(done.stdout) if done.returncode == 0 else -1), " ".join((done.stdout + done.stderr).split())

    def files(self) -> set[str]:
        return {str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_second_run_changes_nothing_and_a_part_less_takes_its_file_away(folder: Folder) -> None:
    assert folder.write()[0] == 2
    assert folder.files() == {"kustomization.yaml", "kubegpu.yaml", "objects/gpu_autoscaling.yaml"}
    assert "path: ./clusters/gpus/objects" in (folder.path / "kubegpu.yaml").read_text()
    folder.path.joinpath("objects", "theirs.yaml").write_text("kind: ConfigMap\n")
    assert folder.write()[0] == 0
    assert folder.write(gitops_state="absent")[0] == 1
    assert folder.files() == {"objects/theirs.yaml"}


@pytest.mark.parametrize("written", ["{0}/", "{1}/./gpus", "~/gpus"])
def test_a_folder_is_the_same_however_it_is_written(
    folder: Folder, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is compared with what is to be: else all of it would be removed at the second run."""
    monkeypatch.setenv("HOME", str(folder.path.parent))
    place = {"gitops_folder": written.format(folder.path, folder.path.parent)}
    assert folder.write(**place)[0] == 2
    made = folder.files()
    assert folder.write(**place)[0] == 0
    assert folder.files() == made != set()


@pytest.mark.parametrize(
    ("given", "path"),
    [("./clusters/gpus/", "clusters/gpus"), ("/clusters/gpus", "clusters/gpus"), ("./", ""), ("/", ""), (".", "")],
)
def test_a_path_in_the_repository_may_be_written_as_one_likes(given: str, path: str) -> None:
    assert RoleValues("gitops", {"gitops_path": given}, {"kubegpu_chart_mirror": ""})["__gitops_place"]["path"] == path


def test_a_component_that_somebody_else_brings_is_not_written(folder: Folder) -> None:
    roles = {"gitops_roles": ["nvidia_device_plugin", "dcgm_exporter"], "dcgm_exporter_state": "existing"}
    assert folder.write(**roles)[0] == 2
    assert folder.files() == {"kustomization.yaml", "kubegpu.yaml", "releases/nvidia_device_plugin.yaml"}


@pytest.mark.parametrize("state", ["present", "existing"])
def test_labels_of_nodes_that_a_pool_needs_are_told(folder: Folder, state: str) -> None:
    """They are not in the folder, and without them all nodes have the configuration of no pool."""
    pool = {"name": "shared", "nodes": {"pool": "dev", "zone": "a"}, "sharing": "time-slicing", "replicas": 4}
    _changed, said = folder.write(
        gitops_roles=["nvidia_device_plugin"],
        nvidia_device_plugin_state=state,
        nvidia_device_plugin_pools=[pool, {"name": "whole", "nodes": {"pool": "prod"}}],
    )
    next_step = (
        "Next: `kubectl label nodes --selector pool=dev,zone=a nvidia.com/device-plugin.config=shared`,"
        " `kubectl label nodes --selector pool=prod nvidia.com/device-plugin.config=whole`"
    )
    assert (next_step in said) is (state == "present")


def test_what_cannot_be_is_refused_and_nothing_is_written(folder: Folder) -> None:
    _changed, said = folder.write(gitops_tool="argocd")
    assert "gitops_repository is empty" in said
    secret = {"gitops_roles": ["dcgm_exporter"], "dcgm_exporter_values": {"basicAuth": {"password": "hunter2"}}}
    _changed, said = folder.write(**secret)
    assert "dcgm_exporter: basicAuth.password would lie there for all to read" in said
    assert "hunter2" not in said.partition("PLAY [")[2]
    assert not folder.path.exists()


def test_a_file_of_somebody_else_stays(folder: Folder) -> None:
    folder.path.mkdir()
    theirs = folder.path / "kubegpu.yaml"
    theirs.write_text("kind: Kustomization\n")
    _changed, said = folder.write()
    assert "kubegpu.yaml was not written by this playbook for inventory" in said
    assert (folder.files(), theirs.read_text()) == ({"kubegpu.yaml"}, "kind: Kustomization\n")


@pytest.mark.parametrize(
    "other",
    [{"gitops_path": "clusters/gpus/b"}, {"kubegpu_inventory_id": "b"}],
    ids=["of another folder", "of another inventory"],
)
def test_the_folder_of_another_cluster_stays(folder: Folder, other: dict[str, str]) -> None:
    """Below the folder of this one, or in a folder that this one has for itself."""
    below = {"gitops_folder": str(folder.path / "b"), **other}
    assert folder.write(**below)[0] == 2
    theirs = folder.files()
    assert folder.write()[0] == 2
    assert folder.write(gitops_state="absent")[0] == 1
    assert folder.files() == theirs
    for name in ("objects", "releases"):
        assert folder.write(gitops_folder=str(folder.path / name), **other)[0] == 2
    theirs = folder.files()
    assert folder.write(gitops_state="absent")[0] == 0
    assert folder.files() == theirs
    _changed, said = folder.write(gitops_folder=str(folder.path / "b"))
    assert "was not written by this playbook for inventory" in said


def test_gpus_are_not_divided_without_a_cluster(folder: Folder) -> None:
    code, said = folder.write(gpu_autoscaling_divide_gpus=True)
    assert code == -1
    assert "gpu_autoscaling_divide_gpus is true, but files for Flux or Argo CD are written without the nodes" in said
    assert not folder.path.exists()
