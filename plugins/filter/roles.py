# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Filters that only the roles of this collection call, in variables and in conditions of tasks.

Each one is a function of module_utils, or calls one with the values of a template. It is documented there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from ansible import context
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.given_rows import (
    row_faults,
    unknown_options,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.image_pullers import image_pullers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.kube_names import short_name
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.workloads import (
    missing_texts,
    proof_targets,
    search_queries,
    workloads,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.waiting_pods import Awaited, report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster import confirmation as confirmations
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.identity import (
    inventory_id,
    missing_inventories,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.run_kubeconfig import kubectl_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import gpu_nodes, helm, keda, stack
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import gpu_operator as operator
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.chart_values import merged_values
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.closed_servers import refusal
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.dashboards import config_maps
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.dependents import lost_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import (
    gpu_node_labels,
    label_removal,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.plugin_pools import (
    Sharing,
    plugin_pools,
    shares_gpus,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.receivers import alertmanager_values
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.releases import Release, conflict
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.servers import (
    examined_servers,
    server_gpu_facts,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.openpgp import openpgp_fingerprints
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.x509 import not_after
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import exits, loadtest_objects
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.request_schedule import longest_s
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.decisions import server_addresses
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.files import differing_files
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report import conformance
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.commands import with_commands
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.run_summary import Run, lines
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import specification
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import redacted, secrets_in

# ansible-doc shows this page for each filter of this file.
DOCUMENTATION = r"""
name: roles
short_description: Filters of the roles of this collection
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Only roles of this collection call these filters.
options:
  _input:
    description: The value to filter.
    type: raw
    required: true
"""

Object = Mapping[str, Any]


def autoscaled_workloads(
    autoscalers: Sequence[Object],
    found: Sequence[Sequence[Any]] = (),
    orphans: Sequence[Object] = (),
    elsewhere: Sequence[Sequence[Object]] = (),
) -> dict[str, Any]:
    """The fields of Workloads as lists, the targets `to_prove`, and `missing_texts` with the queries to `search` for.

    orphans: HPAs whose workload does not exist. elsewhere: results of these queries.
    """
    sorted_out = workloads(autoscalers, found)
    lists = {key: list(rows) for key, rows in vars(sorted_out).items()}
    return {
        **lists,
        "to_prove": proof_targets(sorted_out.wanted, orphans),
        "search": search_queries() if sorted_out.missing else [],
        "missing_texts": missing_texts(sorted_out.missing, elsewhere),
    }


def certificate_end(text: str) -> datetime:
    """Raises: ValueError if it is not a certificate."""
    return not_after(text).replace(tzinfo=None)  # as Ansible's `now` returns it


def input_faults(sources: Sequence[str], autoscalers: Any = ()) -> list[str]:
    """Errors of what a run is given: inventories that do not exist, and rows of autoscalers that are no list."""
    return [
        *(
            f"controller -> inventory: there is no inventory {source}. Nothing was changed. Next: correct -i, or run "
            "without it and pass -e kubegpu_kubeconfig=<path>"
            for source in missing_inventories(sources)
        ),
        *row_faults(autoscalers),
    ]


def doctor_commands(report: Object, command: str, kubeconfig: str, context: str = "") -> dict[str, Any]:
    """The doctor's report with commands as fixes."""
    return with_commands(report, command, kubectl_of(kubeconfig, context), str(Path(__file__).resolve().parents[2]))


def chart_values(own: Object, given: Object | None = None, lists: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Raises: ValueError if a value for one of the lists is not a list."""
    return merged_values(own, given, lists or {})


def conformance_files(proof: Object, form: str = "", servers: Sequence[str] = ()) -> list[dict[str, str]]:
    files = conformance.conformance_files(plain(proof), str(form), servers)
    return [{"name": name, "content": content} for name, content in files.items()]


def confirmation(request: Object, given: str = "") -> dict[str, str]:
    """`cluster` and `prompt` of a removal, and `refused` if it is not confirmed. Raises: ValueError."""
    try:
        removal = confirmations.Removal.of(request)
    except (AttributeError, KeyError, TypeError) as err:
        raise ValueError(f"confirmation: a removal needs `what` and lists of names: {err}") from err
    confirming = _confirming(removal, request.get("settings") or {})
    return {
        "cluster": removal.cluster,
        "prompt": confirmations.prompt(removal),
        "refused": confirmations.refusal(removal, str(given or ""), confirming),
    }


def _confirming(removal: confirmations.Removal, settings: Object) -> str:
    """The command of this run, without values that the user did not type."""
    given = context.CLIARGS
    return confirmations.command(
        [str(name) for name in given.get("args") or ()],
        [str(name) for name in given.get("inventory") or ()],
        str(given.get("subset") or ""),
        settings,
        removal.cluster,
    )


def daemon_set_rollout(daemon_sets: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return asdict(gpu_nodes.rollout(daemon_sets, nodes))


def dashboard_objects(dashboards: Object, metadata: Object) -> list[dict[str, Any]]:
    return config_maps(plain(dashboards), metadata)


def gpu_offers(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = gpu_nodes.offers(nodes)
    return {"ready": list(found.ready), "waiting": list(found.waiting), "shown": found.shown}


def gpu_operator_status(objects: Sequence[Sequence[Object]]) -> dict[str, Any]:
    """objects: ClusterPolicies, the DaemonSet of the validators, and GPU nodes."""
    status = operator.operator_status(*objects)
    return {**asdict(status), "ready": status.ready}


def grafana_values(options: Object) -> dict[str, Any]:
    return stack.grafana_values(plain(options))


def helm_archive(pin: Object, pinned: Object, platform: str, mirror: str = "") -> dict[str, str]:
    return asdict(helm.archive(pin, pinned, platform, mirror))


def keda_dependents(
    objects: Sequence[Sequence[Object]], context: str, inventory: str, preview: bool = False
) -> dict[str, Any]:
    """`error` that prevents the removal; `leaving` while everything that depends on KEDA is being deleted."""
    found = keda.dependents([*chain.from_iterable(objects)], inventory, preview=preview)
    return {"leaving": bool(found.leaving) and not found.staying, "error": found.error(context)}


def loadtest_longest(sweep: Object) -> float:
    return longest_s(plain(sweep))


def pods_not_ready(awaited: Object, pods: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]] = ()) -> str:
    """awaited: fields of Awaited."""
    given = {key: value for key, value in awaited.items() if value is not None}
    words = {key: " ".join(str(given[key]).split()) for key in ("hop", "seen", "fix")}
    return report(Awaited(**{**given, **words}), pods, events)


def release_conflict(seen: Object, chart: Object, adopt: bool = False) -> str:
    """seen: result of chart_release. chart: `release`, `namespace`, and `adopt`, the variable that allows adoption."""
    known = {key: seen[key] for key in ("status", "chart", "owned", "made_by", "begun", "changes")}
    release = Release(chart["release"], chart["namespace"], **known, option=chart.get("adopt") or "")
    return conflict(release, adopt=boolean(adopt))


def run_summary(run: Object) -> list[str]:
    return lines(Run(**run))


def secret_paths(value: Any) -> list[str]:
    return list(dict.fromkeys(secret.path for secret in secrets_in(value)))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "alertmanager_values": alertmanager_values,
            "autoscaled_workloads": autoscaled_workloads,
            "certificate_end": certificate_end,
            "chart_values": chart_values,
            "closed_to": refusal,
            "confirmation": confirmation,
            "conformance_error": conformance.conformance_error,
            "conformance_files": conformance_files,
            "conformance_lines": conformance.conformance_lines,
            "daemon_set_rollout": daemon_set_rollout,
            "dashboard_objects": dashboard_objects,
            "differing_files": differing_files,
            "doctor_commands": doctor_commands,
            "examined_servers": examined_servers,
            "gpu_node_labels": gpu_node_labels,
            "gpu_label_removal": label_removal,
            "gpu_nodes": gpu_nodes.gpu_nodes,
            "gpu_offers": gpu_offers,
            "gpu_operator_status": gpu_operator_status,
            "grafana_values": grafana_values,
            "helm_archive": helm_archive,
            "helm_platform": helm.platform,
            "image_pullers": lambda *given: list(image_pullers(*given)),
            "input_faults": input_faults,
            "inventory_id": inventory_id,
            "keda_dependents": keda_dependents,
            "loadtest_exits": exits,
            "loadtest_longest": loadtest_longest,
            "loadtest_objects": loadtest_objects,
            "lost_metrics": lambda *given: lost_metrics(*map(plain, given)),
            "openpgp_fingerprints": openpgp_fingerprints,
            "plugin_pools": plugin_pools,
            "pods_not_ready": pods_not_ready,
            "redacted": redacted,
            "release_conflict": release_conflict,
            "run_summary": run_summary,
            "runtime_class_users": gpu_nodes.runtime_class_users,
            "secret_paths": secret_paths,
            "unknown_options": lambda names, role: unknown_options(names, specification(role)),
            "server_addresses": server_addresses,
            "server_gpu_facts": server_gpu_facts,
            "shares_gpus": lambda pools, sharing="none": shares_gpus(Sharing(sharing=sharing, pools=pools)),
            "short_name": lambda name: short_name(str(name)),
        }
