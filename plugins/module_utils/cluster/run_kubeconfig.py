# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The kubeconfig of one run: a private copy with one context, made once. Nothing else of the run reads the user's file.

It lies in the folder that ansible-playbook creates for each run, with mode 0700, and removes at its end.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import HopError, enumeration
from ..formats.kubeconfig import alone, refusal
from ..formats.yaml import to_yaml
from ..hops import Hop
from .kubeconfig import path_of, read_kubeconfig, refuse_other_login

# Programs that read one of these would look for a context that the copy does not have.
_CONTEXT_VARIABLES = ("K8S_AUTH_CONTEXT", "HELM_KUBECONTEXT")
# The folder of a run is `ansible-local-` with the PID of ansible-playbook and eight more characters.
_RUN = "ansible-local-"
_RUN_RANDOM = 8


@dataclass(frozen=True)
class RunKubeconfig:
    """path: the copy. If none could be made, a file that has the reason, which each module reports.

    exists: whether the user has a file, even one that cannot be used.
    key: of file and context, whether the file exists or not. What a run knows of its cluster holds for this key alone.
    instead: without a file, the kubeconfigs that kubectl would read here, for an error; can be empty.
    """

    path: str
    exists: bool
    key: str
    instead: str = ""


def run_kubeconfig(given: str, context: str, folder: Path) -> RunKubeconfig:
    """The copy of this context. It is made by the first caller, and not changed by others.

    given: the user's file. context: as in the inventory; empty for the only one. folder: that of the run.
    """
    source = Path(os.path.abspath(path_of(given)))
    key = sha256(json.dumps([str(source), context]).encode()).hexdigest()[:16]
    copy = folder / f"kubegpu-{os.uname().nodename}-{key}"
    if not copy.is_file():
        try:
            _create_of_the_same_cluster(copy, _chosen(given, source, context), source)
        except HopError as err:
            reason = copy.with_name(f"{copy.name}-refused")
            is_missing = not source.is_file() and os.pathsep not in str(source)  # several files are not supported
            _replace(reason, refusal(str(source), err, is_missing=is_missing))
            return RunKubeconfig(str(reason), not is_missing, key, _instead() if is_missing else "")
        _remove_leftovers(copy)
    return RunKubeconfig(str(copy), exists=True, key=key)


def _instead() -> str:
    paths = {"$KUBECONFIG": os.environ.get("KUBECONFIG", ""), "~/.kube/config": os.path.expanduser("~/.kube/config")}
    return "; ".join(_shown(name, path) for name, path in paths.items() if path and Path(path).is_file())


def _shown(name: str, path: str) -> str:
    try:
        contexts = sorted(read_kubeconfig(path).contexts)
    except HopError as err:
        return f"{name} is {path}, which cannot be used: {err.seen}"
    return f"{name} is {path} with the context{'s' * (len(contexts) != 1)} {enumeration(contexts) or '(none)'}"


def _chosen(given: str, source: Path, context: str) -> dict[str, Any]:
    document = alone(read_kubeconfig(given), context, str(source))
    refuse_other_login(str(source))
    for name in _CONTEXT_VARIABLES:
        if os.environ.get(name, document["current-context"]) not in ("", document["current-context"]):
            raise HopError(
                Hop.API_SERVER,
                seen=f"the environment has {name}={os.environ[name]}, and the run uses context "
                f"{document['current-context']} of {source}. Nothing was changed.",
                fix=f"unset {name}, or set kubegpu_context to {os.environ[name]}",
            )
    return document


def forget(copy: Path) -> None:
    """Let the next task make the copy again, of any cluster: this run has changed the file itself."""
    for path in (copy, _mark(copy)):
        path.unlink(missing_ok=True)


def _mark(copy: Path) -> Path:
    """The file with the digest of the cluster. It stays if another machine's run takes the copy for a leftover."""
    return copy.with_name(f"cluster-{copy.name.rpartition('-')[2]}")


def _create_of_the_same_cluster(copy: Path, document: dict[str, Any], source: Path) -> None:
    """Raises: HopError if the run had a copy, and the file leads to another cluster now."""
    mark = _mark(copy)
    if mark.is_file() and mark.read_text() != _digest(document) and not copy.is_file():
        raise HopError(
            Hop.API_SERVER,
            seen=f"the run's copy of {source} is gone, and the file has another cluster now. Nothing was changed.",
            fix="run it again with the kubeconfig of the cluster that is meant",
        )
    _create(copy, document)
    if not mark.is_file():
        mark.write_text(_digest(read_kubeconfig(str(copy)).document))


def _digest(document: Mapping[str, Any]) -> str:
    return sha256(json.dumps(document["clusters"], sort_keys=True).encode()).hexdigest()


def _create(copy: Path, document: dict[str, Any]) -> None:
    """Write the copy, unless another process of the run was first."""
    written = _written(copy, document)
    try:
        os.link(written, copy)
    except FileExistsError:
        pass
    finally:
        os.unlink(written)


def _replace(path: Path, document: dict[str, Any]) -> None:
    os.replace(_written(path, document), path)


def _written(path: Path, document: dict[str, Any]) -> str:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # its mode is 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(to_yaml([document]))
    return name


def _remove_leftovers(copy: Path) -> None:
    """Remove the copies of runs that were killed on this machine."""
    prefix = copy.name.rpartition("-")[0]
    for left in copy.parent.parent.glob(f"{_RUN}*/*{prefix}-*"):
        if not _is_alive(left.parent.name[len(_RUN) : -_RUN_RANDOM]):
            left.unlink(missing_ok=True)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):  # another name, or the process of another user
        return True
    return True


def kubectl_of(kubeconfig: str, context: str) -> str:
    """kubectl for this kubeconfig, without options if it reads that file anyway.

    kubeconfig: path as given; empty for kubectl's own.
    """
    own = os.environ.get("KUBECONFIG") or "~/.kube/config"
    is_own = not kubeconfig or Path(kubeconfig).expanduser() == Path(own).expanduser()
    return " ".join(
        ["kubectl", *([] if is_own else ["--kubeconfig", kubeconfig]), *(["--context", context] if context else [])]
    )
