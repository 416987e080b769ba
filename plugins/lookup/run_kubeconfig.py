# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
name: run_kubeconfig
short_description: Copy the kubeconfig of a run
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the path of a copy of a kubeconfig with only one context, its cluster and its
    user. The first lookup of a run makes the copy, and later ones return it. A change of the file or of its current
    context has no effect on the run.
  - The copy is in the temporary folder of the run, with mode 0600. Ansible removes this folder when the run ends. The
    next run removes the copy of an interrupted run.
  - If the file is missing, or has several contexts and O(context) is empty, all modules of this collection fail with
    that reason.
options:
  _terms:
    description: Path of the kubeconfig on the controller. A relative path is relative to the current directory.
    type: list
    elements: str
    required: true
  context:
    description: Name of the context. Empty if the file has only one.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: List the nodes of the cluster
  kubernetes.core.k8s_info:
    kubeconfig: "{{ lookup('kubegpu.autoscale.run_kubeconfig', '~/.kube/config', context='gpus-in-europe').path }}"
    kind: Node
"""

RETURN = r"""
_raw:
  description:
    - C(path) of the copy, whether the kubeconfig C(exists), and a C(key) of its file and context.
    - C(instead) names other kubeconfigs if it does not exist.
  type: list
  elements: dict
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.lookup import LookupBase
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.run_kubeconfig import run_kubeconfig


class LookupModule(LookupBase):
    """Returns one copy for each path."""

    def run(self, terms: list[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        context = self.get_option("context") or ""
        return [asdict(run_kubeconfig(term, context, Path(constants.DEFAULT_LOCAL_TMP))) for term in terms]
