"""apt of this machine, asked about repositories that the test makes: nothing of the machine changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server import apt_offer
from ansible_collections.kubegpu.autoscale.plugins.modules import server_info

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt on this machine")
DESCRIBED = yaml.safe_load(server_info.RETURN)["result"]["contains"]


def repository(folder: Path, **packages: list[str]) -> str:
    """A flat repository with versions of packages, by its address."""
    folder.mkdir()
    stanza = "Package: {}\nVersion: {}\nArchitecture: all\nFilename: ./{}.deb\nSize: 1\nSHA256: {:064}\n\n"
    rows = [stanza.format(name, version, name, 0) for name, versions in packages.items() for version in versions]
    (folder / "Packages").write_text("".join(rows))
    return f"file:{folder}"


def look(capsys: pytest.CaptureFixture[str], *repositories: dict[str, Any], **options: Any) -> dict[str, Any]:
    arguments = {"repositories": [{"suite": "./", **repository} for repository in repositories], **options}
    with patch_module_args({"apt_offer": arguments}), pytest.raises(SystemExit):
        server_info.main()
    return json.loads(capsys.readouterr().out)["result"]


def test_a_package_that_is_there_is_not_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    uri = repository(tmp_path / "there", kubegpu1=["2.3.6-1~debian.12"], kubegpu2=["1"])

    seen = look(capsys, {"name": "there", "uri": uri, "packages": ["kubegpu1=2.3.6-*", "kubegpu2"]})

    assert (seen["missing"], seen["failures"], seen["installed"]) == ([], [], [])


def test_what_is_missing_is_told_with_what_there_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = repository(tmp_path / "first", kubegpu1=["2.3.6-1", "2.10.0-1", "2.3.7-1"])
    second = repository(tmp_path / "second", kubegpu2=["1"])

    seen = look(
        capsys,
        {"name": "first", "uri": first, "packages": ["kubegpu1=2.1.9-*"]},
        {"name": "second", "uri": second, "packages": ["kubegpu2=1", "kubegpu3=1"]},
    )

    assert set(seen["missing"][0]) == set(DESCRIBED["missing"]["sample"][0])
    assert [(entry["repository"], entry["package"], entry["offered"]) for entry in seen["missing"]] == [
        ("first", "kubegpu1=2.1.9-*", ["2.10.0-1", "2.3.7-1", "2.3.6-1"]),
        ("second", "kubegpu3=1", []),
    ]


def test_a_repository_that_cannot_be_read_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    uri = repository(tmp_path / "there", kubegpu1=["1"])
    gone = {"name": "gone", "uri": f"file:{tmp_path}/gone", "packages": ["kubegpu2=1"]}

    seen = look(capsys, gone, {"name": "there", "uri": uri, "packages": ["kubegpu1=1"]})

    assert [entry["package"] for entry in seen["missing"]] == ["kubegpu2=1"]
    assert "gone" in " ".join(seen["failures"])


def test_what_is_installed_is_not_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The repository is not there: it is not looked at."""
    version = subprocess.check_output(["dpkg-query", "--show", "--showformat", "${Version}", "dpkg"], text=True)

    gone = {"name": "gone", "uri": f"file:{tmp_path}/gone", "packages": [f"dpkg={version}"]}

    seen = look(capsys, gone)

    assert (seen["missing"], seen["failures"], seen["installed"]) == ([], [], [f"dpkg={version}"])


def test_files_of_the_collection_are_found_as_the_module_find_returns_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "preferences.d").mkdir()
    (pin := tmp_path / "preferences.d" / "kubegpu-docker.pref").write_text("pin")
    (tmp_path / "preferences.d" / "other.pref").write_text("")
    (index := tmp_path / "there_InRelease").write_text("")
    pin.chmod(0o640)
    monkeypatch.setattr(apt_offer, "_APT", tmp_path)
    monkeypatch.setattr(apt_offer, "_LISTS", tmp_path)

    found, known = look(capsys, {"name": "there", "uri": "", "packages": ["dpkg"]})["files"]

    checksum = hashlib.sha1(b"pin").hexdigest()
    assert found == {"path": str(pin), "checksum": checksum, "mode": "0640", "uid": os.getuid(), "gid": os.getgid()}
    assert known["path"] == str(index)


def test_the_proxy_is_asked_for_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing listens at the discard port, and the reason names it."""
    there = {"name": "there", "uri": "http://kubegpu.invalid/apt", "packages": ["kubegpu1=1"]}

    seen = look(capsys, there, proxy="http://127.0.0.1:9")

    assert "127.0.0.1:9" in " ".join(seen["failures"])


class Redirecting(BaseHTTPRequestHandler):
    """A proxy before two hosts: the first one sends to the second, which has the packages."""

    packages = b""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        there = self.packages if url.hostname == "second.invalid" and url.path.endswith("/Packages") else b""
        self.send_response(302 if url.hostname == "first.invalid" else 200 if there else 404)
        self.send_header("Location", f"http://second.invalid{url.path}")
        self.send_header("Content-Length", str(len(there)))
        self.end_headers()
        self.wfile.write(there)

    def log_message(self, *_words: object) -> None:
        """Nothing."""


def test_a_host_that_a_repository_redirects_to_is_reached_by_the_proxy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """pkgs.k8s.io is one, and apt asks a setting of its own for each host."""
    repository(tmp_path / "there", kubegpu1=["1"])
    first = {"name": "first", "uri": "http://first.invalid/apt", "packages": ["kubegpu1=1"]}
    handler = type("Handler", (Redirecting,), {"packages": (tmp_path / "there" / "Packages").read_bytes()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        proxy = f"http://127.0.0.1:{server.server_port}"
        seen = look(capsys, {**first, "hosts": ["second.invalid"]}, proxy=proxy)
        server.shutdown()

    assert seen["missing"] == [], seen["failures"]


def test_the_settings_and_lists_of_the_machine_stay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folders = [Path("/etc/apt"), Path("/var/lib/apt/lists")]
    before = {path: path.stat().st_mtime_ns for folder in folders for path in [folder, *folder.rglob("*")]}
    uri = repository(tmp_path / "there", kubegpu1=["1"])

    look(capsys, {"name": "there", "uri": uri, "packages": ["kubegpu1=2"]})

    assert {path: path.stat().st_mtime_ns for folder in folders for path in [folder, *folder.rglob("*")]} == before
