"""Who answers for a pod, for how long, and what is taken for an answer. The way into its network is not taken here."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.masked_module import MaskedModule
from ansible_collections.kubegpu.autoscale.plugins.modules import pod_reach


@pytest.fixture(autouse=True)
def own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this process instead of a pod's."""
    monkeypatch.setattr(pod_reach, "python", lambda _, code, *words: [sys.executable, "-c", code, *map(str, words)])


@contextmanager
def saying(word: bytes, family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    """A port where somebody says it and hangs up."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.create_server((host, 0), family=family) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(word)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def connect(wanted: dict[str, str]) -> dict[str, str]:
    """With the runner that the module passes."""
    with patch_module_args({}):
        module = MaskedModule(argument_spec={})
    return pod_reach.connect(module.run, "", wanted, 3)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_an_address_where_another_answers_is_missed() -> None:
    with saying(b"somebody") as port, saying(b"uid") as right:
        wanted = {f"127.0.0.1:{port}": "uid", f"127.0.0.1:{right}": "uid"}
        answers = connect(wanted)

    assert answers == {f"127.0.0.1:{port}": "another answers there: 'somebody'", f"127.0.0.1:{right}": ""}


def test_of_the_dns_no_word_is_wanted() -> None:
    with saying(b"anything") as port:
        assert connect({f"127.0.0.1:{port}": ""}) == {f"127.0.0.1:{port}": ""}


def test_nobody_is_told_with_the_reason() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert "refused" in connect({address: "uid"})[address]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="takes IPv6")
def test_an_address_of_ipv6_is_asked() -> None:
    with saying(b"uid", socket.AF_INET6) as port:
        assert connect({f"[::1]:{port}": "uid"}) == {f"[::1]:{port}": ""}


def test_what_answers_ends_with_its_pod(tmp_path: Path) -> None:
    namespace = tmp_path / "cni"
    namespace.touch()
    port = free_port()
    words = pod_reach.python(str(namespace), pod_reach.LISTEN, namespace, "uid", port, 60)
    with subprocess.Popen(words) as listener:
        end = time.monotonic() + 10
        address = f"127.0.0.1:{port}"
        while (answer := connect({address: "uid"})[address]) and time.monotonic() < end:
            pass
        assert answer == ""
        namespace.unlink()
        assert listener.wait(10) == 0


def test_what_answers_ends_by_itself_when_a_run_was_killed(tmp_path: Path) -> None:
    words = pod_reach.python("", pod_reach.LISTEN, tmp_path, "uid", free_port(), 1)
    assert subprocess.run(words, timeout=10).returncode == 0


def sandbox(folder: Path, name: str, pod: str, *spaces: dict[str, str]) -> None:
    (folder / name).mkdir()
    config = {"annotations": {"io.kubernetes.cri.sandbox-uid": pod}, "linux": {"namespaces": spaces}}
    (folder / name / "config.json").write_text(json.dumps(config))


def test_the_network_is_that_of_the_pods_own_sandbox(tmp_path: Path) -> None:
    """A container of the host's network has no path; a file may be half written, and a container has no annotation."""
    for name, text in {"half": '{"annot', "container": "{}"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    sandbox(tmp_path, "other", "other", {"type": "network", "path": "/run/netns/other"})
    sandbox(tmp_path, "host", "mine", {"type": "pid"})
    sandbox(tmp_path, "mine", "mine", {"type": "ipc"}, {"type": "network", "path": "/run/netns/mine"})

    assert pod_reach.namespace_of("mine", tmp_path) == "/run/netns/mine"
    with pytest.raises(pod_reach.ReachError, match="containerd runs no pod gone with its own network"):
        pod_reach.namespace_of("gone", tmp_path)
