"""The private kubeconfig of a run: one context, chosen once."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster import run_kubeconfig as tested
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import (
    check_kubeconfig,
    names_no_file,
    read_kubeconfig,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.run_kubeconfig import run_kubeconfig
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_MAP, AUTH_ARG_SPEC
from collection import ROOT
from kubeconfigs import admin, production, together


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As ansible-playbook makes one for each run."""
    path = tmp_path / "tmp" / f"ansible-local-{os.getpid()}abcdefgh"
    path.mkdir(parents=True)
    return path


def written(path: Path, *files: dict[str, Any], **more: Any) -> str:
    path.write_text(json.dumps({**together(*files), **more}))
    return str(path)


def refused(given: str, context: str, folder: Path) -> str:
    run = run_kubeconfig(given, context, folder)
    with pytest.raises(HopError) as caught:
        read_kubeconfig(run.path)
    return str(caught.value)


def test_the_copy_has_one_context_and_only_its_user_reads_it(tmp_path: Path, folder: Path) -> None:
    given = written(tmp_path / "config", production(), admin())
    run = run_kubeconfig(given, "kubernetes-admin@kubernetes", folder)
    copy = yaml.safe_load(Path(run.path).read_text())

    assert run.exists
    assert {name: copy[name] for name in ("clusters", "contexts", "users")} == {
        name: admin()[name] for name in ("clusters", "contexts", "users")
    }
    assert copy["current-context"] == "kubernetes-admin@kubernetes"
    assert stat.S_IMODE(Path(run.path).stat().st_mode) == 0o600
    assert "THE-ONLY-TOKEN" not in Path(run.path).read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: written(path, production(), admin(), **{"current-context": "kubernetes-admin@kubernetes"}),
        lambda path: written(path, admin()),
        lambda path: path.write_text("not: a: kubeconfig"),
        lambda path: path.unlink(),
    ],
    ids=["another current context", "another cluster", "broken", "removed"],
)
def test_no_change_of_the_file_reaches_the_run(tmp_path: Path, folder: Path, change: Any) -> None:
    given = written(tmp_path / "config", production())
    first = run_kubeconfig(given, "", folder)
    text = Path(first.path).read_text()
    change(Path(given))

    assert run_kubeconfig(given, "", folder) == first
    assert Path(first.path).read_text() == text


@pytest.mark.parametrize("is_own", [True, False], ids=["by the run itself", "by another run"])
def test_a_copy_that_is_gone_is_of_no_other_cluster(tmp_path: Path, folder: Path, is_own: bool) -> None:
    """A run in another container of this host name sees no process of this one, and removes its copy."""
    given = written(tmp_path / "config", production())
    copy = Path(run_kubeconfig(given, "", folder).path)
    text = copy.read_text()
    copy.unlink()
    assert Path(run_kubeconfig(given, "", folder).path).read_text() == text
    written(tmp_path / "config", admin())
    tested.forget(copy) if is_own else copy.unlink()

    if is_own:
        assert read_kubeconfig(run_kubeconfig(given, "", folder).path).current == "kubernetes-admin@kubernetes"
    else:
        assert "is gone, and the file has another cluster now. Nothing was changed." in refused(given, "", folder)


def test_several_processes_use_the_copy_of_the_first(tmp_path: Path, folder: Path) -> None:
    given = str(tmp_path / "config")

    def run(number: int) -> str:
        made = written(tmp_path / f"config-{number}", [production(), admin()][number % 2])
        os.replace(made, given)  # as kubectl does: a reader sees the old file or the new one
        return Path(run_kubeconfig(given, "", folder).path).read_text()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(run, range(64)))) == 1
    assert len(list(folder.glob("kubegpu-*"))) == 1


def test_a_file_that_is_made_or_corrected_during_the_run_is_used(tmp_path: Path, folder: Path) -> None:
    given = str(tmp_path / "config")
    missing = run_kubeconfig(given, "", folder)
    assert not missing.exists
    assert names_no_file({"kubeconfig": missing.path})
    assert f"there is no file {given}" in refused(given, "", folder)
    written(tmp_path / "config", production(), admin())
    several = run_kubeconfig(given, "", folder)
    assert several.exists
    assert not names_no_file({"kubeconfig": several.path})
    written(tmp_path / "config", production())
    assert read_kubeconfig(run_kubeconfig(given, "", folder).path).current == "production"


@pytest.mark.parametrize(
    ("context", "variables", "seen"),
    [
        ("", {}, "has 2 contexts: kubernetes-admin@kubernetes, production. Nothing was changed."),
        ("gone", {}, "has no context gone"),
        ("production", {"K8S_AUTH_CONTEXT": "other"}, "K8S_AUTH_CONTEXT=other, and the run uses context production"),
        ("production", {"HELM_KUBECONTEXT": "other"}, "HELM_KUBECONTEXT=other, and the run uses context production"),
        ("production", {"K8S_AUTH_CONTEXT": "production", "HELM_KUBECONTEXT": ""}, ""),
    ],
)
def test_a_cluster_that_may_be_another_is_refused(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    context: str,
    variables: dict[str, str],
    seen: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = written(tmp_path / "config", production(), admin())
    if not seen:
        assert read_kubeconfig(run_kubeconfig(given, context, folder).path).current == context
        return
    assert seen in refused(given, context, folder)
    assert given in refused(given, context, folder)


def test_several_files_are_no_missing_file(tmp_path: Path, folder: Path) -> None:
    """Otherwise a removal would end without an error and without a removal, as for a cluster that is gone."""
    files = (written(tmp_path / "one", production()), written(tmp_path / "two", admin()))
    run = run_kubeconfig(":".join(files), "", folder)

    assert run.exists
    assert not names_no_file({"kubeconfig": run.path})
    assert "several files in one variable are not supported" in refused(":".join(files), "", folder)


# Of kubernetes.core, all options of a login, and those that the run's copy decides or that choose no cluster.
NO_OTHER = {"kubeconfig", "context", "verify_ssl", "validate_certs", "ssl_ca_cert", "ca_cert", "proxy", "no_proxy"}
NO_OTHER |= {"proxy_headers", "persist_config"}
OPTIONS = {*chain(*AUTH_ARG_MAP.items()), *AUTH_ARG_SPEC} - NO_OTHER


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_no_variable_leads_a_run_elsewhere(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """AWX's credential for Kubernetes sets host and API key, which kubernetes.core prefers to a kubeconfig."""
    monkeypatch.setenv(f"K8S_AUTH_{option.upper()}", "other")
    given = written(tmp_path / "config", production())

    assert f"the environment has K8S_AUTH_{option.upper()}, which would replace" in refused(given, "", folder)


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_no_variable_leads_a_module_elsewhere(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Of a play's `environment`, only modules know."""
    given = written(tmp_path / "config", production())
    auth = {**dict.fromkeys(AUTH_ARG_SPEC), "kubeconfig": run_kubeconfig(given, "", folder).path}
    check_kubeconfig(auth)
    monkeypatch.setenv(f"K8S_AUTH_{option.upper()}", "other")

    with pytest.raises(HopError, match=f"K8S_AUTH_{option.upper()}, which would replace .* of {given}"):
        check_kubeconfig(auth)


def test_each_module_that_changes_a_cluster_checks_that() -> None:
    modules = {path.stem: path.read_text() for path in (ROOT / "plugins/modules").glob("*.py")}
    changing = {name for name, text in modules.items() if re.search("AUTH_ARG_SPEC|GpuModule", text)} - {"objects_info"}
    assert len(changing) >= 11
    for name in sorted(changing):
        assert re.search(r"GpuModule\(|check_kubeconfig\(", modules[name]), name


def test_paths_in_the_file_mean_what_they_meant(tmp_path: Path, folder: Path) -> None:
    """As kubectl reads them: relative to the file's folder, and a program without a slash from the PATH."""
    cluster = {"server": "https://192.0.2.1", "certificate-authority": "pki/ca.crt"}
    user = {
        "client-certificate": "pki/me.crt",
        "client-key": "/keys/me.key",
        "tokenFile": "token",
        "exec": {"command": "./bin/login", "args": ["a/b"], "env": [{"name": "AWS_PROFILE", "value": "ml"}]},
    }
    file = {**production(), "clusters": [{"name": "eks", "cluster": cluster}], "users": [{"name": "me", "user": user}]}
    copy = read_kubeconfig(run_kubeconfig(written(tmp_path / "config", file), "", folder).path)

    assert copy.clusters["eks"] == {**cluster, "certificate-authority": f"{tmp_path}/pki/ca.crt"}
    assert copy.users["me"] == {
        "client-certificate": f"{tmp_path}/pki/me.crt",
        "client-key": "/keys/me.key",
        "tokenFile": f"{tmp_path}/token",
        "exec": {**user["exec"], "command": f"{tmp_path}/./bin/login"},  # type: ignore[dict-item]
    }
    user["exec"] = {"command": "aws", "args": ["eks", "get-token"]}
    copy = read_kubeconfig(run_kubeconfig(written(tmp_path / "other", file), "", folder).path)
    assert copy.users["me"]["exec"] == user["exec"]


def test_the_copy_of_a_killed_run_is_removed_and_no_other(tmp_path: Path, folder: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    copies = {}
    for pid in (ended.pid, os.getppid()):
        run = folder.parent / f"ansible-local-{pid}abcdefgh"
        run.mkdir()
        copies[pid] = Path(run_kubeconfig(written(tmp_path / "config", production()), "", run).path)
    elsewhere = copies[ended.pid].with_name("kubegpu-another-machine-0123456789abcdef")
    copies[ended.pid].touch()
    elsewhere.touch()
    run_kubeconfig(written(tmp_path / "config", production()), "", folder)

    assert not copies[ended.pid].exists()
    assert copies[os.getppid()].exists()
    assert elsewhere.exists()
    assert list(tested.Path(folder).glob(".*")) == []
