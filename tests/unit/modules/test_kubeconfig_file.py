"""A kubeconfig that has other clusters, as the module leaves it on the disk."""

from __future__ import annotations

import json
from base64 import b64encode
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.modules import kubeconfig
from kubeconfigs import admin, production, together


class File:
    """A kubeconfig, and runs of the module on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.path, self._capsys = folder, folder / "config", capsys
        self.record = folder / "inventory" / ".kubegpu" / "contexts.json"

    def write(self, document: Any, mode: int = 0o600) -> None:
        self.path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        self.path.chmod(mode)

    def read(self) -> Any:
        return yaml.safe_load(self.path.read_text())

    def run(self, cluster: dict[str, Any], *, check: bool = False, **options: Any) -> dict[str, Any]:
        given = {"path": str(self.path), "record": str(self.record), "content": yaml.safe_dump(cluster), **options}
        flags = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_verbosity": 3}
        with pytest.raises(SystemExit), patch_module_args({**given, **flags}):
            kubeconfig.main()
        said = self._capsys.readouterr().out
        keys = [*admin()["users"][0]["user"].values(), "THE-ONLY-TOKEN"]
        assert [key for key in keys if key in said] == [], "neither in the diff nor in the invocation"
        return json.loads(said)

    def backups(self) -> list[Path]:
        return sorted(self.folder.glob("config.*~"))

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {"inventory"}


@pytest.fixture
def file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> File:
    return File(tmp_path, capsys)


def test_a_new_file_is_for_its_owner_alone(file: File) -> None:
    result = file.run(admin())
    assert result["changed"]
    assert result["result"] == {"context": "kubernetes-admin@kubernetes", "has_others": False}
    assert (file.read(), file.path.stat().st_mode & 0o777) == (admin(), 0o600)
    assert not file.run(admin())["changed"]
    assert file.files() == {"config"}
    assert not file.record.exists()


def test_a_file_with_another_cluster_is_merged_and_backed_up(file: File) -> None:
    file.write(production(), 0o644)
    result = file.run(admin())
    assert file.read() == together(production(), admin())
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [yaml.safe_load(path.read_text()) for path in file.backups()] == [production()]
    assert result["backup_file"] == str(file.backups()[0])
    assert result["result"] == {"context": "kubernetes-admin@kubernetes", "has_others": True}
    assert json.loads(file.record.read_text()) == {str(file.path): "kubernetes-admin@kubernetes"}
    assert (file.record.parent / ".gitignore").read_text() == "*\n"
    assert not file.run(admin())["changed"]
    assert len(file.backups()) == 1


def test_only_what_was_merged_is_removed(file: File) -> None:
    file.write(production())
    file.run(admin())
    result = file.run(admin(), state="absent")
    assert result["changed"]
    assert file.read() == production()
    assert yaml.safe_load(Path(result["backup_file"]).read_text()) == together(production(), admin())
    assert not file.record.exists()
    assert not file.run(admin(), state="absent")["changed"]


def test_a_file_of_this_cluster_alone_goes_without_a_trace(file: File) -> None:
    """A backup of it would be the login of a cluster that is gone."""
    file.run(admin())
    file.run(admin(serial=2))
    assert file.run(admin(serial=2), state="absent")["changed"]
    assert file.files() == set()
    assert not file.run(admin(), state="absent")["changed"]


def test_check_mode_shows_the_change_and_makes_none(file: File) -> None:
    file.write(production())
    result = file.run(admin(), check=True)
    assert result["changed"]
    assert "kubernetes-admin@kubernetes" in result["diff"]["after"]
    assert "kubernetes-admin@kubernetes" not in result["diff"]["before"]
    assert (file.read(), file.files(), file.record.exists()) == (production(), {"config"}, False)
    file.run(admin())
    assert file.run(admin(), check=True, state="absent")["changed"]
    assert file.read() == together(production(), admin())


def test_an_open_file_is_closed_and_otherwise_left(file: File) -> None:
    text = "# mine\n" + yaml.safe_dump(admin())
    file.write(text, 0o644)
    assert file.run(admin())["changed"]
    assert (file.path.read_text(), file.path.stat().st_mode & 0o777) == (text, 0o600)
    assert not file.run(admin())["changed"]


def test_a_file_without_this_cluster_is_nothing_to_remove(file: File) -> None:
    file.write(production(), 0o644)
    assert not file.run(admin(), state="absent")["changed"]
    assert (file.read(), file.path.stat().st_mode & 0o777) == (production(), 0o644)


def test_what_a_link_leads_to_is_changed(file: File) -> None:
    (file.folder / "real").write_text(yaml.safe_dump(production()))
    file.path.symlink_to(file.folder / "real")
    file.run(admin())
    assert file.path.is_symlink()
    assert file.read() == together(production(), admin())
    assert json.loads(file.record.read_text()) == {str(file.folder / "real"): "kubernetes-admin@kubernetes"}


def test_records_of_other_files_stay(file: File) -> None:
    file.record.parent.mkdir(parents=True)
    file.record.write_text('{"/elsewhere": "b"}')
    file.write(production())
    file.run(admin())
    file.run(admin(), state="absent")
    assert json.loads(file.record.read_text()) == {"/elsewhere": "b"}


class Run:
    """What `change` needs of a module."""

    check_mode = False

    def __init__(self, path: Path, cluster: dict[str, Any], state: str = "present") -> None:
        content = yaml.safe_dump(cluster)
        self.params = {"path": str(path), "content": content, "context": "", "record": None, "run_copy": None}
        self.params |= {"state": state}

    def backup_local(self, path: str) -> str:
        return path


def one_of_many(number: int) -> dict[str, Any]:
    return admin(b64encode(f"CA {number}".encode()).decode())


def add(path: Path, number: int) -> None:
    kubeconfig.change(Run(path, one_of_many(number)))
    kubeconfig.change(Run(path, one_of_many(-number - 1)))
    kubeconfig.change(Run(path, one_of_many(-number - 1), "absent"))


def test_runs_at_the_same_time_lose_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "LOCK_WAIT_S", 600)  # a run that gives up says so, and loses nothing
    path, count = tmp_path / "config", 8
    admin()  # makes its certificate
    runs = [get_context("fork").Process(target=add, args=(path, number)) for number in range(count)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert {run.exitcode for run in runs} == {0}
    found = {row["cluster"]["certificate-authority-data"] for row in yaml.safe_load(path.read_text())["clusters"]}
    assert found == {
        one_of_many(number)["clusters"][0]["cluster"]["certificate-authority-data"] for number in range(count)
    }
    assert [other.name for other in tmp_path.iterdir()] == ["config"]


def test_a_lock_that_stays_is_named(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl leaves one if it is killed."""
    monkeypatch.setattr(kubeconfig, "LOCK_WAIT_S", 0.1)
    file.write(production())
    lock = file.folder / "config.lock"
    lock.touch()
    said = file.run(admin())
    assert f"rm {lock}" in said["msg"]
    assert (file.read(), file.files()) == (production(), {"config", "config.lock"})
    assert file.run(admin(), check=True)["changed"]


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a: b: THE-ONLY-TOKEN", "is not YAML: line 1: mapping values are not allowed here"),
        ("- THE-ONLY-TOKEN", "is not a kubeconfig"),
        ("\ud800", "cannot be read: the file is not UTF-8 text"),
    ],
)
def test_what_is_no_kubeconfig_is_named_and_left(file: File, text: str, seen: str, state: str) -> None:
    file.path.write_bytes(text.encode(errors="surrogatepass"))
    result = file.run(admin(), state=state)
    assert result["failed"]
    assert f"API server: {file.path} {seen}" in result["msg"]
    assert file.path.read_bytes() == text.encode(errors="surrogatepass")
    assert file.files() == {"config"}


def test_a_file_that_cannot_be_written_is_named(file: File) -> None:
    result = file.run(admin(), path=str(file.folder / "none" / "config"))
    assert result["failed"]
    assert "none/config cannot be written: No such file or directory" in result["msg"]


def test_a_record_that_is_broken_is_named(file: File) -> None:
    file.record.parent.mkdir(parents=True)
    file.record.write_text("{")
    assert f"{file.record} is not JSON" in file.run(admin())["msg"]
    assert not file.path.exists(), "nothing is changed before all is read"
