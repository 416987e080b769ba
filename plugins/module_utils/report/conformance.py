# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What a proof shows of the requirements of CNCF's AI conformance, in the form of a submission for 1.37.

A requirement is Implemented only if this run has seen it. One that this collection cannot see has no status.
Source: cncf/k8s-ai-conformance, docs/AIConformance-1.37.yaml and scripts/validate.go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..autoscaling.dcgm_fields import ENGINE_ACTIVE, GPU_UTIL, in_todays
from ..errors import counted, enumeration
from ..formats.yaml import edited, from_yaml, to_yaml
from .doctor_texts import clean, number
from .junit import cases_xml

Proof = Mapping[str, Any]

SUITE = "kubegpu_conformance"
IMPLEMENTED, NOT_APPLICABLE = "Implemented", "N/A"
_UTILIZATION, _MEMORY = {GPU_UTIL, ENGINE_ACTIVE}, {"DCGM_FI_DEV_FB_USED"}
_DOCS = "https://github.com/kubegpu/autoscale/blob/main/docs/conformance.md"


@dataclass(frozen=True)
class Finding:
    """What a run shows of one requirement.

    status: in the words of the form; empty if the requirement is not shown.
    seen:   the evidence, or why it is missing. is_wrong: whether the run has seen that it is not fulfilled.
    """

    status: str
    seen: str
    is_wrong: bool = False


def _shown(seen: str) -> Finding:
    return Finding(IMPLEMENTED, seen)


def _unknown(seen: str) -> Finding:
    return Finding("", f"Not shown by this run: {seen}")


def _wrong(seen: str) -> Finding:
    return Finding("", seen, is_wrong=True)


def _isolation(proof: Proof) -> Finding:
    nodes = proof["nodes"]
    if visible := [row["node"] for row in nodes if row["unrequested"] == "visible"]:
        return _wrong(f"A pod saw GPUs that it had not requested on {enumeration(visible)}.")
    if failed := [row for row in nodes if row["status"] == "failed"]:
        return _unknown(f"node {failed[0]['node']}: {failed[0]['reason']}")
    if not proof["gpu_nodes"]:
        return _unknown("no node offers a GPU")
    proven = {row["node"] for row in nodes if row["status"] == "proven" and row["unrequested"] == "denied"}
    open_nodes = sorted({*proof["gpu_nodes"]} - proven)
    if open_nodes:
        return _unknown(f"{enumeration(open_nodes)} could not be tried")
    several = [row for row in nodes if row["pods"] > 1 and not row["is_shared"]]
    if not several:
        return _unknown("no node had two free GPUs, so no two pods with a GPU each ran side by side")
    return _shown(
        f"On {enumeration([row['node'] for row in nodes])}, pods saw exactly the GPUs that they requested, and two "
        f"pods on {several[0]['node']} had no GPU in common. Unprivileged pods with "
        "NVIDIA_VISIBLE_DEVICES=all and no request saw none."
    )


def _pods(proof: Proof) -> Finding:
    chain = proof["chain"]
    if chain["status"] != "proven":
        return _unknown(chain["reason"] or "no workload was scaled")
    decision = chain["decision"]
    if decision["dry"]:
        return _unknown("one GPU was free, so the maximum of the HPA prevented a second replica")
    if decision["down_s"] is None:
        return _wrong("The HPA scaled up, and did not want one replica again in time after the load.")
    if decision["ready"] <= decision["before"]:
        return _unknown(
            f"the HPA wanted {decision['after']} replicas, but {counted(decision['ready'], 'pod')} became ready"
        )
    if decision["left"] != decision["before"]:
        return _unknown(f"the HPA wanted one replica after the load, but {counted(decision['left'], 'pod')} remained")
    return _shown(
        f"An HPA wanted {decision['after']} replicas {number(decision['seconds'])} s after a load step, on the "
        f"utilization of the pod's GPU ({number(decision['value'])} for target {decision['target_value']}), and "
        f"{decision['ready']} pods with a GPU each were ready. It wanted one {number(decision['down_s'])} s after the "
        f"load, and {counted(decision['left'], 'pod')} remained."
    )


def _gpu_metrics(proof: Proof) -> Finding:
    metrics = proof["chain"].get("metrics")
    if not metrics:
        return _unknown("the workload was not scaled, so Prometheus was not queried")
    if "unread" in metrics:
        return _unknown(metrics["unread"])
    proven = [row for row in proof["nodes"] if row["status"] == "proven"]
    if others := sorted({*proof["gpu_nodes"]} - {row["node"] for row in proven}):
        return _unknown(f"{enumeration(others)} was not proven")
    offered = {row["node"]: row["of"] for row in proven}
    if shared := [row["node"] for row in proven if row["is_shared"]]:
        return _unknown(f"the number of GPUs of {enumeration(shared)} is unknown, because they are shared or split")
    if not metrics["series"] or not offered:
        return _unknown("no series has the name of a proven node in its label Hostname")
    every = sorted(
        name for name, gpus in metrics["series"].items() if all(gpus.get(node, 0) >= of for node, of in offered.items())
    )
    fields = set(map(in_todays, every))
    lacking = [what for what, names in (("utilization", _UTILIZATION), ("memory usage", _MEMORY)) if not fields & names]
    total = counted(sum(offered.values()), "GPU")
    if lacking:
        return _wrong(f"Prometheus has no {' and no '.join(lacking)} of each of the {total} of the proven nodes.")
    return _shown(f"Prometheus has {len(every)} metrics of each of {total} of the proven nodes: {', '.join(every)}.")


def _service_metrics(proof: Proof) -> Finding:
    metrics = proof["chain"].get("metrics")
    if not metrics:
        return _unknown("the workload was not scaled, so nothing was scraped")
    if why := metrics.get("unread") or metrics["unscraped"]:
        return _unknown(why)
    if not metrics["served"]:
        return _wrong("A PodMonitor was created for a service, and Prometheus had no value of its counter.")
    return _shown(
        f"Prometheus found the pods of a service by a PodMonitor and counted its requests: {number(metrics['served'])}."
    )


def _nodes_added(proof: Proof) -> Finding:
    if proof["adds_nodes"]:
        return _unknown("by their labels or provider IDs, nodes may be added on demand, and adding nodes was not tried")
    if not proof["gpu_nodes"]:
        return _unknown("no node offers a GPU")
    if others := sorted(set(proof["gpu_nodes"]) - set(proof["servers"])):
        return _unknown(f"{enumeration(others)} has GPUs, and is no server of the inventory")
    return Finding(
        NOT_APPLICABLE,
        "All GPU nodes of the cluster are servers of an inventory. No node has a label of Karpenter or of a cloud's "
        "node group, or a provider ID, and kubegpu.autoscale installs no cluster autoscaler and no equivalent "
        "mechanism.",
    )


def _missing(component: str) -> Callable[[Proof], Finding]:
    return lambda _proof: _unknown(f"it needs {component}, which this collection does not install. {_DOCS}")


def _not_tried(_proof: Proof) -> Finding:
    return _unknown("this collection does not try it")


# Section, id and level of each requirement of the form, and what this run shows of it.
REQUIREMENTS: Sequence[tuple[str, str, str, Callable[[Proof], Finding]]] = (
    ("accelerators", "driver_runtime_management", "SHOULD", _not_tried),
    ("accelerators", "gpu_sharing", "SHOULD", _not_tried),
    ("accelerators", "virtualized_accelerator", "SHOULD", _not_tried),
    ("networking", "ai_inference", "MUST", _missing("an implementation of the Gateway API")),
    ("networking", "advanced_inference_ingress", "SHOULD", _not_tried),
    ("networking", "high_performance_networking", "SHOULD", _not_tried),
    ("networking", "disaggregated_inference", "SHOULD", _not_tried),
    ("schedulingOrchestration", "gang_scheduling", "MUST", _missing("a gang scheduler, for example Kueue")),
    ("schedulingOrchestration", "cluster_autoscaling", "MUST", _nodes_added),
    ("schedulingOrchestration", "pod_autoscaling", "MUST", _pods),
    ("observability", "accelerator_metrics", "MUST", _gpu_metrics),
    ("observability", "ai_service_metrics", "MUST", _service_metrics),
    ("security", "secure_accelerator_access", "MUST", _isolation),
    ("security", "workload_sandboxing", "SHOULD", _not_tried),
    ("operator", "robust_controller", "MUST", _missing("an AI operator, for example Kubeflow Trainer")),
)
# What only the vendor knows.
_METADATA = (
    "kubernetesVersion",
    "platformName",
    "platformVersion",
    "vendorName",
    "websiteUrl",
    "repoUrl",
    "documentationUrl",
    "productLogoUrl",
    "description",
    "contactEmailAddress",
    "k8sConformanceUrl",
)


def conformance_files(proof: Proof, form: str = "", servers: Sequence[str] = ()) -> dict[str, str]:
    """Name and content of each file of the evidence.

    proof:  result of the module gpu_proof, of this run.
    form:   text of CNCF's form, or of an earlier PRODUCT.yaml, whose other values are kept; empty for a form without
            descriptions.
    servers: names of the nodes that are servers of the inventory.
    Raises: KeyError, TypeError if it is not such a result or form, ValueError if the form is no YAML.
    """
    known = {**proof, "servers": servers}
    found = {name: judge(known) for _section, name, _level, judge in REQUIREMENTS}
    text = form or to_yaml([_form()])
    return {
        "PRODUCT.yaml": edited(text, _product(found, from_yaml(text), proof["generated_at"])),
        "junit.xml": _junit(found, proof),
        "observations.json": json.dumps(proof, indent=2) + "\n",
    }


def conformance_lines(proof: Proof, servers: Sequence[str] = ()) -> list[str]:
    """One line for each requirement that has to be fulfilled."""
    known = {**proof, "servers": servers}
    musts = [(name, judge(known)) for _section, name, level, judge in REQUIREMENTS if level == "MUST"]
    words = {IMPLEMENTED: "shown", NOT_APPLICABLE: "not applicable"}
    return [
        clean(f"{name}: {'NOT FULFILLED' if found.is_wrong else words.get(found.status, 'NOT SHOWN')}: {found.seen}")
        for name, found in musts
    ]


def conformance_error(proof: Proof, servers: Sequence[str] = ()) -> str:
    """Why the run fails: what is not fulfilled, or that nothing is shown; empty otherwise."""
    known = {**proof, "servers": servers}
    found = {name: judge(known) for _section, name, level, judge in REQUIREMENTS if level == "MUST"}
    if wrong := [clean(f"{name}: {finding.seen}") for name, finding in found.items() if finding.is_wrong]:
        return f"NOT FULFILLED: {' '.join(wrong)}"
    return "" if any(finding.status == IMPLEMENTED for finding in found.values()) else "No requirement was shown."


def _form() -> dict[str, Any]:
    """CNCF's form for 1.37, without its descriptions."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for section, name, level, _judge in REQUIREMENTS:
        entry = {"id": name, "level": level, "status": "", "evidence": [], "notes": ""}
        sections.setdefault(section, []).append(entry)
    return {"metadata": {name: f"[{name}]" for name in _METADATA}, "spec": sections}


def _product(found: Mapping[str, Finding], form: Mapping[str, Any], at: str) -> dict[str, Any]:
    sections = {
        section: [_filled(entry, found.get(entry["id"], _not_tried({})), at) for entry in entries]
        for section, entries in form["spec"].items()
    }
    return {**form, "spec": sections}


def _filled(entry: Mapping[str, Any], found: Finding, at: str) -> dict[str, Any]:
    """The entry with what the run shows. What a person filled in stays, unless the run shows that it is wrong."""
    is_kept = not _is_generated(entry) and (entry.get("status") or not found.status)
    if is_kept and not found.is_wrong:
        return dict(entry)
    evidence = _evidence(entry, found.status)
    notes = f"{found.seen} Seen at {at}." if evidence else found.seen
    return {**entry, "status": found.status, "evidence": evidence, "notes": f"{clean(notes)} {_signed(found.status)}"}


def _is_generated(entry: Mapping[str, Any]) -> bool:
    """Whether a person filled in nothing: it is empty, or as this function wrote it."""
    status, notes = entry.get("status") or "", entry.get("notes") or ""
    is_signed = notes.endswith(_signed(status)) if status or notes else True
    return is_signed and (entry.get("evidence") or []) == _evidence(entry, status)


def _signed(status: str) -> str:
    """The end of notes that the next run may replace, as long as the status stays."""
    return f"({status or 'no status'} by kubegpu.autoscale.conformance)"


def _evidence(entry: Mapping[str, Any], status: str) -> list[str]:
    """It names the test case, because a name of upstream's test would claim that this one ran."""
    return [f"file://junit.xml#{entry['id']}"] if status == IMPLEMENTED else []


def _junit(found: Mapping[str, Finding], proof: Proof) -> str:
    """A case for each requirement: passed, failed, or skipped if it was not shown."""
    outcomes = {IMPLEMENTED: "system-out"}
    cases = (
        (name, "failure" if finding.is_wrong else outcomes.get(finding.status, "skipped"), finding.seen)
        for name, finding in found.items()
    )
    return cases_xml(SUITE, proof["generated_at"], proof["seconds"], cases)
