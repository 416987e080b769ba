# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kubeconfig that authentication options name: which cluster it means, and why it means none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import HopError, enumeration
from ..formats.kubeconfig import Kubeconfig
from ..hops import Hop

DEFAULT_PATH = "~/.kube/config"


def read_kubeconfig(given: str) -> Kubeconfig:
    """Raises: HopError that names the file if it is missing, cannot be read or is no kubeconfig."""
    path = Path(given).expanduser()
    if not path.is_file():
        several = os.pathsep in given
        fix = "name one file; several in one variable are not read" if several else "name the kubeconfig of the cluster"
        raise HopError(Hop.API_SERVER, seen=f"there is no file {path}", fix=f"set kubeconfig: {fix}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise HopError(
            Hop.API_SERVER,
            seen=f"{path} cannot be read: {reason}",
            fix="set kubeconfig to the kubeconfig of the cluster",
        ) from err
    return Kubeconfig.read(text, str(path))


def check_kubeconfig(auth: Mapping[str, Any]) -> None:
    """Whether the client can begin with the file and the context that are named.

    Raises: HopError that names the file and what is wrong with it.
    """
    given = auth["kubeconfig"]
    if isinstance(given, str) and given:
        read_kubeconfig(given).context(auth["context"] or "", given)


def place_of(params: Mapping[str, Any]) -> tuple[str, str]:
    """Context and address of the API server that the options mean.

    Raises: HopError if they may mean more than one, or none.
    """
    given = params["kubeconfig"]
    if params["host"] or isinstance(given, dict):
        return params["context"] or "", params["host"] or ""
    path = str(Path(given or DEFAULT_PATH).expanduser())
    config = read_kubeconfig(path)
    if not params["context"] and len(config.contexts) > 1:
        raise HopError(
            Hop.API_SERVER,
            seen=f"{path} has {len(config.contexts)} contexts: {enumeration(sorted(config.contexts))}",
            fix="say which cluster is meant: kubegpu_context in the inventory, context of a module",
        )
    return config.context(params["context"] or "", path)
