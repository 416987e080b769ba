"""Nothing of a cluster lies where git takes it."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubeconfigs
import pytest
import yaml
from collection import ROOT
from playbook import local, run_playbook
from role_tasks import reached
from task_walk import PLAYBOOKS

WRITES = {"ansible.builtin.copy", "ansible.builtin.fetch", "ansible.builtin.template", "kubegpu.autoscale.kubeconfig"}
FOLDERS = "ansible.builtin.include_role"
# These write nothing of a cluster, or write for git.
OTHERS = {
    "roles/_common/tasks/private_folder.yml": "the .gitignore itself",
    "roles/gitops/tasks/configure.yml": "manifests for git, without secrets",
    "roles/helm/tasks/install.yml": "helm",
    "roles/kubernetes/tasks/absent.yml": "removes an entry",
}
TEXT = {"name": "report.json", "content": "{}"}


def writers() -> list[Path]:
    """Files of tasks that leave files on the controller, of all playbooks."""
    return sorted(
        {
            found.path
            for playbook in PLAYBOOKS
            for found in reached(playbook)
            for module in WRITES & found.task.keys()
            if found.is_on_controller or module == "ansible.builtin.fetch"
        }
    )


@cache
def of_a_cluster() -> list[Path]:
    return [path for path in writers() if str(path.relative_to(ROOT)) not in OTHERS]


def writing(path: Path) -> list[dict[str, Any]]:
    """Its tasks that make folders and write files, with texts in place of results."""
    kept = []
    for task in yaml.safe_load(path.read_text()):
        folder = (task.get(FOLDERS) or {}).get("tasks_from", "").startswith("private_")
        if folder or (
            (WRITES | {"ansible.builtin.file"}) & task.keys()
            and task.get("ansible.builtin.file", {}).get("state") != "absent"
        ):
            if isinstance(task.get("loop"), list) and isinstance(task["loop"][0], dict):
                task["loop"] = [{**item, "content": "{}"} for item in task["loop"]]
            kept.append({key: value for key, value in task.items() if key != "when"})
    return [task for task in kept if "metrics" not in task["name"]]  # a folder of node-exporter


def results(folder: Path) -> dict[str, Any]:
    """What the tasks before have found."""
    made = folder / "20261128T000000Z"
    made.mkdir()
    for name in ("etcd.db.gz", "kubernetes.tar", "backup.json"):
        (made / name).write_text("{}")
    return {
        "__gpu_doctor_files": [TEXT],
        "__gpu_proof_evidence": [TEXT],
        "__gpu_proof_files": [TEXT],
        "__kubernetes_backup": {"stdout": '{"cluster": "uid"}'},
        "__kubernetes_backup_made": str(made),
        "__kubernetes_kubeconfig": yaml.safe_dump(kubeconfigs.admin()),
        "__kubernetes_node": "cp1",
    }


def play(
    folder: Path, blocks: list[dict[str, Any]], environment: dict[str, str] | None = None, **variables: Any
) -> str:
    roles = ["_common", *sorted({path.parts[-3] for path in of_a_cluster()})]
    files = [
        str(file)
        for role in roles
        for kind in ("defaults", "vars")
        for file in sorted((ROOT / "roles" / role / kind).rglob("*.yml"))
    ]
    done = run_playbook(folder, local(*blocks, vars_files=files), {**results(folder), **variables}, **environment or {})
    return " ".join((done.stdout + done.stderr).split())


def untracked(repository: Path) -> str:
    words = ["git", "-C", str(repository), "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(path)], check=True)
    return path


def test_git_sees_nothing_of_each_file_alone_and_of_all_in_either_order(tmp_path: Path) -> None:
    """Each in an inventory of its own in a git work tree, and all of them in two more."""
    files = of_a_cluster()
    assert len(files) > 5
    orders = [*([path] for path in files), files, files[::-1]]
    blocks = []
    for number, order in enumerate(orders):
        inventory = repository(tmp_path / str(number)) / "inventory"
        inventory.mkdir()
        tasks = [task for path in order for task in writing(path)]
        blocks.append({"block": tasks, "vars": {"_common_inventory": str(inventory)}})
    said = play(tmp_path, blocks)
    assert "failed=0" in said, said[-3000:]
    for number, order in enumerate(orders):
        written = [path for path in (tmp_path / str(number) / "inventory").rglob("*") if path.is_file()]
        assert [path for path in written if path.name != ".gitignore"], order
        assert {order[0]: untracked(tmp_path / str(number))} == {order[0]: ""}
        assert [path for path in written if path.stat().st_mode & 0o077] == []


CONFIG, COPY = "prod.conf", "prod.conf.*~"
BACKUP = ("etcd.db.gz", "kubernetes.tar", "backup.json")
# What of the names that are written a .gitignore may name: none, each alone, and all of them.
PATTERNS = {
    "kubeconfig": ["", CONFIG, COPY],
    "backup_fetch": ["", *BACKUP, "\n".join(BACKUP), "*\n!*/\n!etcd.db.gz"],
}
ENOUGH = {"kubeconfig": [f"{CONFIG}*", f"{CONFIG}\n*~", "/inventory/"], "backup_fetch": ["/inventory/", "/inventory/*"]}


@pytest.mark.parametrize("name", PATTERNS)
def test_git_has_to_ignore_all_that_is_written(tmp_path: Path, name: str) -> None:
    """In a folder of the user, whose path is given with a variable of the environment."""
    option = "kubegpu_kubeconfig" if name == "kubeconfig" else "kubernetes_backup_fetch"
    patterns, blocks = [*PATTERNS[name], *ENOUGH[name]], []
    for number, pattern in enumerate(patterns):
        inventory = repository(tmp_path / "fleet" / str(number)) / "inventory"
        inventory.mkdir()
        (inventory.parent / ".gitignore").write_text(f"/*\n!/inventory\n{pattern}\n")
        if name == "kubeconfig":  # copied before the change
            (inventory / CONFIG).write_text(yaml.safe_dump(kubeconfigs.production()))
        given = f"{tmp_path}/$FLEET_OF_TEST/{number}/inventory"
        said = {"ansible.builtin.debug": {"msg": f"<{number}> {{{{ ansible_failed_result.msg }}}}"}}
        blocks.append(
            {
                "block": writing(ROOT / f"roles/kubernetes/tasks/{name}.yml"),
                "rescue": [said],
                "vars": {
                    "_common_inventory": str(inventory),
                    "kubegpu_kubeconfig": f"{given}/{CONFIG}",
                    "kubernetes_backup_fetch": given,
                },
            }
        )
    output = play(tmp_path, blocks, {"FLEET_OF_TEST": "fleet"})
    assert "failed=0" in output, output[-3000:]
    for number, pattern in enumerate(patterns):
        inventory = tmp_path / "fleet" / str(number) / "inventory"
        files = [path for path in inventory.rglob("*") if path.is_file() and ".kubegpu" not in path.parts]
        if pattern in ENOUGH[name]:
            assert (pattern, untracked(inventory.parent)) == (pattern, "")
            assert len(files) == (2 if name == "kubeconfig" else 3)
        else:
            assert (pattern, f"<{number}> controller -> git: {inventory} would have" in output) == (pattern, True)
            assert f"or set {option} to a path elsewhere" in output
            assert len(files) == (1 if name == "kubeconfig" else 0)


def test_a_path_is_read_as_modules_read_it() -> None:
    texts = {path: path.read_text() for path in (ROOT / "roles").rglob("*.yml")}
    assert [
        path for path, text in texts.items() if text.count("expanduser") != text.count("expandvars | expanduser")
    ] == []


def play_in(folder: Path, path: Path, options: dict[str, Any]) -> str:
    made = folder / str(len(list(folder.iterdir())))
    made.mkdir()
    return play(made, [{"block": writing(path), "vars": {}}], **options)


def test_a_folder_that_is_no_work_tree_is_used_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    options = {"_common_inventory": str(tmp_path), "kubegpu_kubeconfig": str(home / "config")}
    assert "failed=0" in play_in(tmp_path, ROOT / "roles/kubernetes/tasks/kubeconfig.yml", options)
    assert [path.name for path in home.iterdir()] == ["config"]
    assert home.stat().st_mode & 0o777 == 0o755


def test_each_exception_is_a_file_that_writes() -> None:
    assert set(OTHERS) <= {str(path.relative_to(ROOT)) for path in writers()}
