# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a kubeconfig says of a cluster and of the login to it, which the client library does not tell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import HopError
from ..formats.yaml import from_yaml
from ..hops import Hop

_DEFAULT = "~/.kube/config"


@dataclass(frozen=True)
class ExecPlugin:
    """The program that a kubeconfig has kubectl run to log in.

    hint: how to install it, in the words of the kubeconfig.
    """

    command: str
    hint: str = ""

    def failure(self, error: str) -> HopError:
        """error: why the client library got no login from it."""
        if "/" not in self.command and not shutil.which(self.command):
            seen = f"the kubeconfig logs in with `{self.command}`, which is not in the PATH"
            fix = f"install {self.command}, or add its folder to the PATH of ansible-playbook"
            return HopError(Hop.API_SERVER, seen, f"{fix}. {self.hint}" if self.hint else fix)
        return HopError(
            Hop.API_SERVER,
            seen=f"the kubeconfig logs in with `{self.command}`, which gave no login: {error or 'no reason given'}",
            fix=f"log in with {self.command} again; kubectl get --raw /readyz, with the same kubeconfig, runs it too",
        )


def place_of(options: Mapping[str, Any]) -> tuple[str, str]:
    """Context and address of the API server that the authentication options mean.

    Raises: HopError if they may mean more than one, or no cluster that the kubeconfig has.
    """
    given = options["kubeconfig"]
    if options["host"] or isinstance(given, dict):
        return options["context"] or "", options["host"] or ""
    path = _path(given or _DEFAULT)
    if not path.is_file():
        several = os.pathsep in str(given or "")
        fix = "name one file; several in one variable are not read" if several else "name the kubeconfig of the cluster"
        raise HopError(Hop.API_SERVER, seen=f"there is no file {path}", fix=f"set kubeconfig: {fix}")
    config = _read(path)
    contexts = {str(context): content for context, content in _named(config, "context").items()}
    if not options["context"] and len(contexts) > 1:
        raise HopError(
            Hop.API_SERVER,
            seen=f"{path} has {len(contexts)} contexts: {', '.join(sorted(contexts))}",
            fix="say which cluster is meant: kubegpu_context in the inventory, context of a module",
        )
    name = options["context"] or config.get("current-context") or next(iter(contexts), "")
    if name not in contexts:
        raise HopError(
            Hop.API_SERVER,
            seen=f"the kubeconfig {path} has no context {name}",
            fix=f"choose one of {', '.join(sorted(contexts)) or 'none: the file is empty'}",
        )
    return name, _named(config, "cluster").get(contexts[name].get("cluster"), {}).get("server", "")


def place_known(options: Mapping[str, Any]) -> tuple[str, str]:
    """As place_of, for a report: empty where the options do not say it, as in a pod with a ServiceAccount."""
    config = _config_of(options)
    contexts = _named(config, "context")
    name = _context(options, config)
    server = _named(config, "cluster").get(contexts.get(name, {}).get("cluster"), {}).get("server", "")
    return (options.get("context") or "", options["host"]) if options.get("host") else (name, server)


def exec_plugin(options: Mapping[str, Any]) -> ExecPlugin | None:
    """The program that the kubeconfig's user logs in with; None if there is none, or the kubeconfig cannot be read."""
    config = _config_of(options)
    contexts = _named(config, "context")
    user = _named(config, "user").get(contexts.get(_context(options, config), {}).get("user"), {})
    found = user.get("exec") or {}
    return ExecPlugin(found["command"], found.get("installHint") or "") if found.get("command") else None


def _config_of(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """As the client library chooses it; empty where it cannot be read, which that library has said then."""
    variables = ("K8S_AUTH_KUBECONFIG", "KUBECONFIG")
    given = options.get("kubeconfig") or next(filter(None, map(os.environ.get, variables)), _DEFAULT)
    if isinstance(given, dict):
        return given
    try:
        return _read(_path(given))
    except (HopError, OSError):
        return {}


def _context(options: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    return options.get("context") or os.environ.get("K8S_AUTH_CONTEXT") or config.get("current-context") or ""


def _path(given: str) -> Path:
    """As Ansible reads an option of type path."""
    return Path(os.path.expandvars(given)).expanduser()


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = from_yaml(path.read_text(encoding="utf-8"))
    except ValueError as err:
        fix = "correct the file, or set kubeconfig to another: kubectl config view, with the same kubeconfig, reads it"
        raise HopError(Hop.API_SERVER, seen=f"the kubeconfig {path} is no YAML: {err}", fix=fix) from err
    return config if isinstance(config, dict) else {}


def _named(config: Mapping[str, Any], part: str) -> dict[str | None, Mapping[str, Any]]:
    """Contexts, clusters or users by name; part: the singular, which is the name of their content as well."""
    entries = config.get(f"{part}s") or ()
    return {entry["name"]: entry.get(part) or {} for entry in entries}
