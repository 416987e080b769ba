# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The kubeconfig in authentication options: its cluster, its errors, and its login."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_MAP, AUTH_ARG_SPEC

from ..errors import HopError, enumeration
from ..formats.kubeconfig import Kubeconfig, missing_user, several_contexts
from ..hops import Hop

_DEFAULT = "~/.kube/config"
# Options of kubernetes.core that choose neither cluster nor user. It prefers variables of the others to a kubeconfig,
# and helm does with its own.
_NO_LOGIN = {"kubeconfig", "context", "verify_ssl", "validate_certs", "ssl_ca_cert", "ca_cert", "proxy", "no_proxy"}
_NO_LOGIN |= {"proxy_headers", "persist_config"}
_OPTIONS = sorted({*chain(*AUTH_ARG_MAP.items()), *AUTH_ARG_SPEC} - _NO_LOGIN)
_LOGIN_VARIABLES = (
    *(f"K8S_AUTH_{name.upper()}" for name in _OPTIONS),
    *(f"HELM_KUBE{name}" for name in ("APISERVER", "TOKEN", "ASUSER", "ASGROUPS")),
)


@dataclass(frozen=True)
class ExecPlugin:
    """The program with which a kubeconfig's user logs in.

    kubeconfig: its path, or "the kubeconfig" without one. hint: how to install the program, from the kubeconfig.
    """

    command: str
    kubeconfig: str
    hint: str = ""

    def failure(self, error: str) -> HopError:
        """error: why the client library got no login from it."""
        logs_in = f"{self.kubeconfig} logs in with `{self.command}`, which"
        if not shutil.which(self.command):
            seen, fix = f"{logs_in} is not in the PATH", f"install {self.command}"
            if "/" in self.command:
                seen = f"{logs_in} is missing or not executable"
            else:
                fix += ", or add its folder to the PATH of ansible-playbook"
            return HopError(Hop.API_SERVER, seen, f"{fix}. {self.hint}" if self.hint else fix)
        return HopError(
            Hop.API_SERVER,
            seen=f"{logs_in} returned no credentials: {error or 'no reason given'}",
            fix=f"log in with {self.command} again; `kubectl get --raw /readyz` with the same kubeconfig tests it",
        )


def read_kubeconfig(given: str) -> Kubeconfig:
    """Raises: HopError with the path if the file is missing or not a kubeconfig, or why a run has no copy."""
    config = _read(given)
    if "seen" in config.copied:
        raise HopError(Hop.API_SERVER, config.copied["seen"], config.copied["fix"])
    return config


def _read(given: str) -> Kubeconfig:
    path = path_of(given)
    if not path.is_file():
        several = os.pathsep in given
        fix = (
            "name one file; several files in one variable are not supported"
            if several
            else "name the kubeconfig of the cluster"
        )
        raise HopError(Hop.API_SERVER, seen=f"there is no file {path}", fix=f"set kubeconfig: {fix}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "the file is not UTF-8 text"
        raise HopError(
            Hop.API_SERVER,
            seen=f"{path} cannot be read: {reason}",
            fix="set kubeconfig to the kubeconfig of the cluster",
        ) from err
    return Kubeconfig.read(text, str(path))


def refuse_other_login(source: str) -> None:
    """Raises: HopError if the environment would replace the cluster or the user of the kubeconfig `source`."""
    if found := [name for name in _LOGIN_VARIABLES if os.environ.get(name)]:
        raise HopError(
            "controller -> cluster",
            seen=f"the environment has {', '.join(found)}, which would replace the cluster or the user of {source}. "
            "Nothing was changed.",
            fix=f"unset {' '.join(found)}, also in the play's `environment`; in AWX, remove the credential with them",
        )


def check_kubeconfig(auth: Mapping[str, Any]) -> None:
    """Check that the named file and context can be used, and that nothing replaces them.

    Raises: HopError with the path and the problem.
    """
    given = auth["kubeconfig"]
    if isinstance(given, str) and given:
        config = read_kubeconfig(given)
        refuse_other_login(config.copied.get("source") or given)
        wanted = _context_of(auth, config)
        name, _server = config.context(wanted, given)
        if not wanted:
            raise HopError(
                Hop.API_SERVER,
                seen=f"{given} selects no context: its current-context is empty",
                fix=f"set kubegpu_context, or context of the module, to one of {enumeration(sorted(config.contexts))}",
            )
        if (user := config.contexts[name].get("user")) and user not in config.users:
            raise missing_user(name, user, given)


def names_no_file(params: Mapping[str, Any]) -> bool:
    """Whether the options refer to a missing kubeconfig, and to no other login."""
    given = params.get("kubeconfig")
    if params.get("host") or isinstance(given, dict):
        return False
    try:
        return bool(_read(given or _DEFAULT).copied.get("is_missing"))
    except HopError:
        return not path_of(given or _DEFAULT).is_file()


def place_of(params: Mapping[str, Any]) -> tuple[str, str]:
    """Context and address of the API server in the options.

    Raises: HopError if they are ambiguous or missing.
    """
    given = params["kubeconfig"]
    if params["host"] or isinstance(given, dict):
        return params["context"] or "", params["host"] or ""
    path = str(path_of(given or _DEFAULT))
    config = read_kubeconfig(path)
    if not params["context"] and len(config.contexts) > 1:
        raise several_contexts(config, path)
    return config.context(params["context"] or "", path)


def place_known(params: Mapping[str, Any]) -> tuple[str, str]:
    """Like place_of, for a report: empty if the options do not set it, as in a pod with a ServiceAccount."""
    if params.get("host"):
        return params.get("context") or "", params["host"]
    config = _config_of(params)
    name = _context_of(params, config)
    cluster = config.contexts.get(name, {}).get("cluster") or ""
    return name, str(config.clusters.get(cluster, {}).get("server") or "")


def exec_plugin(params: Mapping[str, Any]) -> ExecPlugin | None:
    """The program with which the kubeconfig's user logs in; None without one, or if the kubeconfig cannot be read."""
    config = _config_of(params)
    user = config.contexts.get(_context_of(params, config), {}).get("user") or ""
    found = config.users.get(user, {}).get("exec") or {}
    if not found.get("command"):
        return None
    given = _given(params)
    path = "the kubeconfig" if isinstance(given, dict) else config.copied.get("source") or str(path_of(given))
    return ExecPlugin(found["command"], path, found.get("installHint") or "")


def _given(params: Mapping[str, Any]) -> Any:
    """The path or the document of the kubeconfig, as the client library chooses it."""
    variables = ("K8S_AUTH_KUBECONFIG", "KUBECONFIG")
    return params.get("kubeconfig") or next(filter(None, map(os.environ.get, variables)), _DEFAULT)


def _config_of(params: Mapping[str, Any]) -> Kubeconfig:
    """Empty if it cannot be read, which the client library has already reported."""
    given = _given(params)
    try:
        return Kubeconfig.of(given, "kubeconfig") if isinstance(given, dict) else read_kubeconfig(given)
    except HopError:
        return Kubeconfig.of({}, "")


def _context_of(params: Mapping[str, Any], config: Kubeconfig) -> str:
    return params.get("context") or os.environ.get("K8S_AUTH_CONTEXT") or config.current


def path_of(given: str) -> Path:
    """As Ansible reads an option of type path."""
    return Path(os.path.expandvars(given)).expanduser()
