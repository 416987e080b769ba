#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: kubeconfig
short_description: Merge a cluster into a kubeconfig, or remove it
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Merges the cluster, the context and the user of one cluster's kubeconfig into a file that may have others.
    Entries of other clusters and the current context do not change.
  - The cluster is recognized by its certificate authority and its address, with any entry name. If another cluster has
    the same name, a digest of the authority is added. The module fails if only the authority is the same and no free
    O(context) is named, because that may be another cluster of this authority.
  - A file with entries of other clusters is backed up beside it before each change.
  - The file is replaced atomically, with mode 0600, while it is locked as kubectl locks it (C(PATH.lock)).
author: kubegpu (@kubegpu)
options:
  path:
    description: The kubeconfig file. Its folder must exist.
    type: path
    required: true
  content:
    description: The kubeconfig of the cluster, as kubeadm writes it in C(/etc/kubernetes/admin.conf).
    type: str
    required: true
  context:
    description:
      - Name of the context. The default is the context in the file for this cluster and user, or else the context in
        O(content).
      - The module fails if the file has a context of this name that belongs to another cluster.
      - A context of this name that has another user keeps that user.
    type: str
    default: ""
  record:
    description:
      - JSON file that maps O(path) to the name of the context while O(path) has entries of other clusters. Its folder
        is created, with a C(.gitignore).
    type: path
  run_copy:
    description: The run's copy of O(path), which is removed after a change of O(path). The next task makes another one.
    type: path
  state:
    description:
      - V(present) merges the cluster.
      - V(absent) removes its entries, contexts that use them and its user. If nothing else is in the file, the file is
        removed.
    type: str
    choices: [present, absent]
    default: present
requirements:
  - PyYAML (Python)
attributes:
  check_mode:
    description: Reports the change without making it.
    support: full
  diff_mode:
    description: Shows names, addresses and digests in place of keys, certificates and tokens.
    support: full
"""

EXAMPLES = r"""
- name: Read the administrator's kubeconfig
  ansible.builtin.slurp:
    src: /etc/kubernetes/admin.conf
  register: admin
  no_log: true

- name: Merge the cluster into the kubeconfig on the controller
  kubegpu.autoscale.kubeconfig:
    path: ~/.kube/config
    content: "{{ admin.content | b64decode }}"
    context: gpu
  delegate_to: localhost
  become: false

- name: Remove the cluster again
  kubegpu.autoscale.kubeconfig:
    path: ~/.kube/config
    content: "{{ admin.content | b64decode }}"
    state: absent
  delegate_to: localhost
  become: false
"""

RETURN = r"""
result:
  description: The cluster in the file.
  returned: always
  type: dict
  contains:
    context: {description: Name of its context. Empty if it is absent., type: str, sample: kubernetes-admin@kubernetes}
    has_others: {description: Whether the file has entries of other clusters., type: bool, sample: false}
backup_file:
  description: Copy of the file before the change.
  returned: if the file had entries of other clusters and was changed
  type: str
  sample: /home/me/.kube/config.4711.2026-11-26@14:03:51~
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.run_kubeconfig import forget
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.kubeconfig import (
    Access,
    Kubeconfig,
    has_others,
    merged,
    outline,
    removed,
    written,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.masked_module import MaskedModule

ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True, "no_log": True},
    "context": {"type": "str", "default": ""},
    "record": {"type": "path"},
    "run_copy": {"type": "path"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
MODE = 0o600
LOCK_WAIT_S = 20


def main() -> None:
    module = MaskedModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        module.exit_json(**change(module))
    except HopError as err:
        module.fail_json(msg=str(err), hop=err.hop, fix=err.fix)


def change(module: AnsibleModule) -> dict[str, Any]:
    """Raises: HopError if the file, or the content, is no kubeconfig or cannot be read or written."""
    given = module.params["path"]
    path = Path(os.path.realpath(given))  # what a link leads to is changed, and not replaced by a file
    with nullcontext() if module.check_mode or not os.access(path.parent, os.W_OK) else _locked(path, given):
        return _change(module, path, given)


def _change(module: AnsibleModule, path: Path, given: str) -> dict[str, Any]:
    text = _read(path, given)
    before, access = Kubeconfig.read(text, given), Access.read(module.params["content"])
    context, after = "", before
    if module.params["state"] == "present":
        after, names = merged(before, access, module.params["context"], given)
        context = names.context
    elif access.clusters_in(before):
        after = removed(before, access, given)
    contexts = _contexts(module)
    remembered = {str(path): context} if context and has_others(after, access) else {}
    result: dict[str, Any] = {"result": {"context": context, "has_others": has_others(after, access)}}
    result["diff"] = {
        "before_header": given,
        "after_header": given,
        "before": outline(before),
        "after": outline(after),
    }
    is_changed = after.document != before.document
    is_open = bool(context and text) and path.stat().st_mode & 0o777 != MODE
    if (is_changed or is_open) and not module.check_mode:
        if is_changed and has_others(before, access):
            result["backup_file"] = module.backup_local(str(path))
        _put(path, "" if after.is_empty else written(after) if is_changed else text, given)
        if module.params["run_copy"]:
            forget(Path(module.params["run_copy"]))
    wanted = {file: name for file, name in contexts.items() if file != str(path)} | remembered
    if is_recorded := wanted != contexts and bool(module.params["record"]):
        _remember(module, wanted)
    return {**result, "changed": is_changed or is_open or is_recorded}


@contextmanager
def _locked(path: Path, given: str) -> Iterator[None]:
    """As kubectl locks it: while PATH.lock exists, nothing else changes the file. Raises: HopError if that lasts."""
    lock, until = path.with_name(f"{path.name}.lock"), time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, MODE))
            break
        except FileExistsError as err:
            if time.monotonic() > until:
                raise HopError(
                    Hop.API_SERVER,
                    seen=f"{given} is locked by {lock}, as kubectl or another run leaves it. Nothing was changed.",
                    fix=f"wait for that run; without one, `rm {lock}`",
                ) from err
            time.sleep(0.05)
        except OSError as err:
            raise _unwritable(given, err) from err
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _read(path: Path, given: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "the file is not UTF-8 text"
        raise HopError(
            Hop.API_SERVER,
            seen=f"{given} cannot be read: {reason}. Nothing was changed.",
            fix="correct the file, or set kubegpu_kubeconfig to another one",
        ) from err


def _put(path: Path, text: str, given: str) -> None:
    """Replace the file at once, or remove it where there is no text. Its owner stays."""
    try:
        if not text:
            path.unlink(missing_ok=True)
            return
        # Its mode is 0600. What ignores the copies before a change ignores it as well.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix="~")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        if os.geteuid() == 0 and path.exists():
            os.chown(name, path.stat().st_uid, path.stat().st_gid)
        os.replace(name, path)
    except OSError as err:
        raise _unwritable(given, err) from err


def _unwritable(given: str, err: OSError) -> HopError:
    return HopError(
        Hop.API_SERVER,
        seen=f"{given} cannot be written: {err.strerror}. It is as it was.",
        fix="make its folder writable, or set kubegpu_kubeconfig to another path",
    )


def _contexts(module: AnsibleModule) -> dict[str, str]:
    """What is recorded, by path. Raises: HopError if that cannot be read."""
    record = module.params["record"]
    if not record:
        return {}
    try:
        return json.loads(_read(Path(record), record) or "{}")
    except ValueError as err:
        raise HopError(
            Hop.API_SERVER, seen=f"{record} is not JSON: {err}. Nothing was changed.", fix="remove it, and run again"
        ) from err


def _remember(module: AnsibleModule, contexts: dict[str, str]) -> None:
    record = Path(module.params["record"])
    if module.check_mode:
        return
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    (record.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    _put(record, json.dumps(contexts, indent=2) + "\n" if contexts else "", str(record))


if __name__ == "__main__":
    main()
