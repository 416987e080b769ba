#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: objects_info
short_description: Read several kinds of objects at once, and wait until they are ready
description:
  - Reads several kinds of objects in one call, like M(kubernetes.core.k8s_info).
  - Can wait until objects are ready. A Deployment and a StatefulSet are ready when all their replicas are updated and
    available. A DaemonSet is ready when each of its nodes has an updated and ready pod. A Job is ready when it has
    succeeded. Any other object is ready when its condition V(Available) or V(Ready) is true for its generation.
author: kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.private
  - kubegpu.autoscale.reads
options:
  objects:
    description: Objects to read. A missing object, and a kind that is not served, result in an empty list.
    type: list
    elements: dict
    required: true
    suboptions:
      api_version:
        description: Group and version of the kind.
        type: str
        default: v1
      kind:
        description: Kind of the objects.
        type: str
        required: true
      namespace:
        description: Namespace to read. The default is all namespaces.
        type: str
      name:
        description: Name of a single object to read.
        type: str
      label_selectors:
        description: Labels of the objects, each as C(name=value).
        type: list
        elements: str
        default: []
      wait:
        description: Wait until at least one object exists and all are ready.
        type: bool
        default: false
  wait_timeout:
    description: Seconds to wait until all objects are ready.
    type: int
    default: 120
requirements:
  - kubernetes >= 30.1 (Python)
"""

EXAMPLES = r"""
- name: Wait until the exporter and Prometheus are ready
  kubegpu.autoscale.objects_info:
    objects:
      - {api_version: apps/v1, kind: DaemonSet, namespace: monitoring, name: dcgm-exporter, wait: true}
      - {api_version: monitoring.coreos.com/v1, kind: Prometheus, namespace: monitoring, wait: true}
      - {kind: Node, label_selectors: [nvidia.com/gpu.present=true]}
    wait_timeout: 300
  register: seen
"""

RETURN = r"""
result:
  description: The objects. Also returned if the module fails.
  returned: always
  type: dict
  contains:
    objects: {description: A list of objects for each entry of O(objects)., type: list, elements: list}
    not_ready: {description: "Objects that are not ready, with the reason.", type: list, elements: str}
  sample:
    objects: [[], [], [{kind: Node, metadata: {name: gpu1}}]]
    not_ready: [Deployment monitoring/prometheus-adapter has 1 of 2 replicas available]
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.rights import refused
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import masked_texts, redacted
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.service import K8sService

Object = Mapping[str, Any]

POLL_S = 1
# Of an API server that is busy, or restarts: while something is waited for, that passes.
NO_ANSWER: tuple[type[Exception], ...] = (CoreException,)
with suppress(ImportError):  # AnsibleK8SModule insists on the library
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    NO_ANSWER += (ApiException, HTTPError)

ARGUMENTS: dict[str, Any] = {
    "objects": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "api_version": {"type": "str", "default": "v1"},
            "kind": {"type": "str", "required": True},
            "namespace": {"type": "str"},
            "name": {"type": "str"},
            "label_selectors": {"type": "list", "elements": "str", "default": []},
            "wait": {"type": "bool", "default": False},
        },
    },
    "wait_timeout": {"type": "int", "default": 120},
}


def why_not_ready(seen: Object) -> str:
    """Empty if the object is ready, else what it lacks."""
    status = seen.get("status") or {}
    if status.get("observedGeneration", seen["metadata"].get("generation")) != seen["metadata"].get("generation"):
        return "was changed, and its controller has not looked at it yet"
    return READY.get(seen["kind"], _condition)(seen, status)


def _replicas(seen: Object, status: Object) -> str:
    wanted = seen["spec"].get("replicas", 1)
    if "observedGeneration" not in status:
        return "was made, and its controller has not looked at it yet"
    if (updated := status.get("updatedReplicas", 0)) != wanted:
        return f"has {updated} of {wanted} replicas updated"
    if (available := status.get("availableReplicas", 0)) != wanted:
        return f"has {available} of {wanted} replicas available"
    return ""


def _pods_on_nodes(_wanted: Object, status: Object) -> str:
    wanted = status.get("desiredNumberScheduled", 0)
    if "observedGeneration" not in status:
        return "was made, and its controller has not looked at it yet"
    if (updated := status.get("updatedNumberScheduled", 0)) != wanted:
        return f"has updated pods on {updated} of {wanted} nodes"
    if (ready := status.get("numberReady", 0)) != wanted:
        return f"has ready pods on {ready} of {wanted} nodes"
    return ""


def _success(_wanted: Object, status: Object) -> str:
    return "" if status.get("succeeded") else "has not succeeded"


def _condition(seen: Object, status: Object) -> str:
    conditions = {entry["type"]: entry for entry in status.get("conditions") or []}
    told = conditions.get("Available") or conditions.get("Ready")
    if told is None:
        return "says nothing of its state"
    if told["status"] != "True":
        return f"is not {told['type']}: {told.get('message') or told.get('reason') or 'no reason given'}"
    generation = seen["metadata"].get("generation")
    if told.get("observedGeneration", generation) != generation:
        return "was changed, and its controller has not looked at it yet"
    return ""


READY: dict[str, Callable[[Object, Object], str]] = {
    "DaemonSet": _pods_on_nodes,
    "Deployment": _replicas,
    "Job": _success,
    "StatefulSet": _replicas,
}


def not_ready(query: Object, found: list[Object]) -> list[str]:
    """One sentence for each object of `query` that is waited for and not ready."""
    if not query["wait"]:
        return []
    if not found:
        return [f"there is no {query['kind']} {_place(query)}"]
    doubts = ((manifest, why_not_ready(manifest)) for manifest in found)
    return [f"{query['kind']} {_place(manifest['metadata'])} {why}" for manifest, why in doubts if why]


def _place(names: Object) -> str:
    known = [names.get("namespace"), names.get("name") or ",".join(names.get("label_selectors") or [])]
    return "/".join(filter(None, known))


def read(service: K8sService, query: Object) -> list[Object]:
    """Raises: CoreException if the API server does not answer."""
    wanted = {key: query[key] for key in ("name", "namespace", "label_selectors")}
    if query["name"] and query["label_selectors"]:  # labels do not count for what is asked for by its name alone
        wanted = {**wanted, "name": None, "field_selectors": [f"metadata.name={query['name']}"]}
    return service.find(query["kind"], query["api_version"], **wanted)["resources"]


def look(service: K8sService, queries: list[Object], found: list[list[Object]]) -> list[str]:
    """Reads into `found` what is missing or was not ready; returns what is not ready."""
    doubts: list[str] = []
    for number, query in enumerate(queries):
        if found[number] and not not_ready(query, found[number]):
            continue
        found[number] = read(service, query)
        doubts += not_ready(query, found[number])
    return doubts


def look_until_ready(
    connect: Callable[[], K8sService], queries: list[Object], found: list[list[Object]], wait_s: float
) -> list[str]:
    """Looks until all is ready or the time is over; returns what is not ready.

    Raises: what `connect` or the library raises, if nothing is waited for.
    """
    give_up = time.monotonic() + wait_s
    while True:
        try:
            doubts = look(connect(), queries, found)
        except NO_ANSWER as error:
            if not any(query["wait"] for query in queries):
                raise
            doubts = [str(error)]
        if not doubts or time.monotonic() >= give_up:
            return doubts
        time.sleep(POLL_S)


def words_of(error: Exception) -> str:
    """A missing right in one sentence, any other error in its own words."""
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, ApiException) and cause.status == 403:
            refusal = ApiError(403, _decoded(cause.body), "")
            if refusal.refused_user:
                return str(refused(refusal))
    return str(error)


def _decoded(body: Any) -> Any:
    try:
        return json.loads(body)
    except (TypeError, ValueError):
        return body


def main() -> None:
    module = AnsibleK8SModule(
        argument_spec={**AUTH_ARG_SPEC, **ARGUMENTS}, supports_check_mode=True, check_pyyaml=False
    )
    module._module.no_log_values.update(masked_texts(module.params))
    queries, wait_s = module.params["objects"], module.params["wait_timeout"]
    found: list[list[Object]] = [[] for _query in queries]
    try:
        doubts = look_until_ready(lambda: K8sService(get_api_client(module), module), queries, found, wait_s)
    except NO_ANSWER as error:
        module.fail_json(msg=words_of(error), result=redacted({"objects": found, "not_ready": []}))
    result = redacted({"objects": found, "not_ready": doubts})
    if doubts:
        module.fail_json(msg=f"not ready after {wait_s} s: {'; '.join(doubts)}", result=result)
    module.exit_json(changed=False, result=result)


if __name__ == "__main__":
    main()
