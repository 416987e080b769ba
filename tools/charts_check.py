"""Compare the lab's charts with the originals: `make charts-check CHARTS=FOLDER`, one folder a chart in it.

Both are rendered with the roles' values in the lab. Every object of the lab's chart must be in the original,
with the same labels, ports, selectors and references. Its rights, arguments, variables and volumes must be the same,
too. Intended differences must be listed in `not-in-lab.yml`. The records of the originals' values must be correct,
too. For an operator's chart, which the lab lacks, only those are compared.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from record_charts import read

from lab.charts.values import pinned, recorded
from lab.versions import CHECKOUT, versions

HERE = CHECKOUT / "lab" / "charts"
NOT_IN_LAB = HERE / "not-in-lab.yml"
LAB_VALUES = CHECKOUT / "inventories" / "lab" / "group_vars" / "all.yml"
KUBERNETES = versions()["packages"]["kubernetes"].partition("-")[0]

NOT_RUN = 3  # exit code: nothing was compared

# Disabled parts of the lab's charts that are compared anyway.
SWITCHED_ON = {
    "dcgm-exporter": {"kubernetes": {"enablePodUID": True}},
    "kube-prometheus-stack": {
        **{part: {"enabled": True} for part in ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")},
        "prometheus": {
            "ingress": {"enabled": True, "hosts": ["prometheus.example"], "ingressClassName": "any"},
            "route": {"main": {"enabled": True, "hostnames": ["prometheus.example"], "parentRefs": [{"name": "any"}]}},
        },
    },
    "prometheus-adapter": {"rules": {"external": [{"seriesQuery": "up", "metricsQuery": "up"}]}},
}

Object = dict[str, Any]


@dataclass(frozen=True, order=True)
class Key:
    """Identity of an object, without the version of its API."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def releases(variants: Mapping[str, Object]) -> dict[str, dict[str, Object]]:
    """The roles' results for each variant: name of a chart to release, namespace and values."""
    with TemporaryDirectory() as folder:
        inventory = Path(folder) / "inventory.json"
        inventory.write_text(json.dumps({"all": {"hosts": variants}}))
        ansible = str(Path(sys.executable).with_name("ansible-playbook"))
        done = subprocess.run(
            [ansible, "-i", str(inventory), str(HERE / "values.yml"), "--skip-tags", "always", "--tags", "values"],
            cwd=CHECKOUT,
            env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"the roles give no values: {done.stdout}")
    shown = json.loads(done.stdout)["plays"][0]["tasks"][-1]["hosts"]
    made = {name: shown[name]["msg"] for name in variants}
    return {name: {release["name"]: release for release in its} for name, its in made.items()}


def render(helm: str, chart: Path, release: Object, *, switched_on: bool = True) -> dict[Key, Object]:
    """The objects of a chart by key. switched_on: with the parts that the lab disables."""
    with TemporaryDirectory() as folder:
        values, more = Path(folder) / "values.json", Path(folder) / "more.json"
        values.write_text(json.dumps(release["values"]))
        more.write_text(json.dumps(SWITCHED_ON.get(release["name"], {}) if switched_on else {}))
        template = [helm, "template", release["release"], chart, "--namespace", release["namespace"]]
        cluster = ["--kube-version", KUBERNETES, "--api-versions", "apiregistration.k8s.io/v1"]
        argv = [*template, "--values", values, "--values", more, *cluster]
        text = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {key(manifest): manifest for manifest in yaml.safe_load_all(text) if manifest}


def key(manifest: Object) -> Key:
    return Key(manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])


def facets(manifest: Object) -> Iterator[tuple[str, Any]]:
    """What users, other charts and selectors depend on, by part, without images, limits and security contexts."""
    # Versions of the lab's kube-state-metrics and node-exporter differ from the originals'.
    yield (
        "labels",
        {
            name: value
            for name, value in manifest["metadata"].get("labels", {}).items()
            if name != "app.kubernetes.io/version"
        },
    )
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Service":
            yield "type", spec.get("type", "ClusterIP")
            yield "headless", spec.get("clusterIP") == "None"
            yield "selector", spec["selector"]
            yield "ports", [(port.get("name"), port["port"], port.get("targetPort")) for port in spec["ports"]]
        case "Deployment" | "DaemonSet":
            yield from _workload(spec)
        case "ServiceMonitor":
            yield "selector", (spec["selector"], spec.get("namespaceSelector"), spec.get("jobLabel"))
            yield "endpoints", sorted(map(_endpoint, spec["endpoints"]), key=str)
            yield "relabelings", [endpoint.get("relabelings") or [] for endpoint in spec["endpoints"]]
            yield "metricRelabelings", [endpoint.get("metricRelabelings") or [] for endpoint in spec["endpoints"]]
        case "Prometheus":
            yield (
                "selectors",
                {name: value for name, value in spec.items() if name.endswith("Selector") and name != "nodeSelector"},
            )
            for name in ("serviceAccountName", "portName", "replicas", "retention", "externalUrl"):
                yield name, spec[name]
        case "PrometheusRule":
            yield (
                "records",
                {
                    group["name"]: [(rule.get("record"), rule.get("labels", {})) for rule in group["rules"]]
                    for group in spec["groups"]
                },
            )
        case "ClusterRoleBinding" | "RoleBinding":
            yield "binding", (manifest["roleRef"], manifest["subjects"])
        case "ClusterRole" | "Role":
            yield "rules", sorted({right for rule in manifest.get("rules") or () for right in _rights(rule)})
        case "ConfigMap":
            yield "keys", sorted(manifest["data"])
        case "APIService" | "HTTPRoute" | "Ingress" | "PodDisruptionBudget":
            yield "spec", spec


def _workload(spec: Object) -> Iterator[tuple[str, Any]]:
    pod = spec["template"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    yield "selector", spec["selector"]
    yield "replicas", spec.get("replicas")
    yield "pod labels", {name: value for name, value in labels.items() if name != "app.kubernetes.io/version"}
    for name in ("serviceAccountName", "runtimeClassName", "priorityClassName"):
        yield name, pod.get(name)
    for name in ("hostNetwork", "hostPID"):
        yield name, pod.get(name, False)
    for name in ("nodeSelector", "tolerations"):
        yield name, pod.get(name) or None
    yield "volumes", {volume["name"]: _source(volume) for volume in pod.get("volumes") or ()}
    for container in pod["containers"]:
        title = f"container {container['name']}"
        yield f"{title} command", (container.get("command"), sorted(map(str, container.get("args") or ())))
        yield (
            f"{title} env",
            {
                variable["name"]: variable.get("value", variable.get("valueFrom"))
                for variable in container.get("env") or ()
            },
        )
        yield f"{title} mounts", {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts") or ()}
        yield f"{title} ports", [(port.get("name"), port["containerPort"]) for port in container.get("ports", [])]
        yield (
            f"{title} probes",
            {
                probe: (container[probe]["httpGet"]["path"], container[probe].get("initialDelaySeconds", 0))
                for probe in ("livenessProbe", "readinessProbe")
                if probe in container
            },
        )


def _source(volume: Object) -> Object:
    """Source of a volume, without the kind of a host path, which only the kubelet checks."""
    found = {name: value for name, value in volume.items() if name != "name"}
    if "hostPath" in found:
        found["hostPath"] = found["hostPath"]["path"]
    return found


def _rights(rule: Object) -> Iterator[str]:
    """Each separately, independent of how they are combined."""
    for verb in rule["verbs"]:
        for group in rule.get("apiGroups") or ("",):
            for resource in rule.get("resources") or rule["nonResourceURLs"]:
                for name in rule.get("resourceNames") or ("*",):
                    yield f"{verb} {group}/{resource} {name}"


def _endpoint(endpoint: Object) -> tuple[Any, ...]:
    defaults = {"port": None, "path": "/metrics", "scheme": "http", "interval": None, "honorLabels": False}
    return tuple(endpoint.get(name, default) for name, default in defaults.items())


def differences(ours: Mapping[Key, Object], theirs: Mapping[Key, Object], allowed: list[str]) -> Iterator[str]:
    """One text per difference; `allowed` are patterns of its first line for intended ones."""
    found = list(_differences(ours, theirs))
    heads = [difference.partition("\n")[0] for difference in found]
    yield from (difference for difference, head in zip(found, heads, strict=True) if not _matches(head, allowed))
    for pattern in allowed:
        if not any(_matches(head, [pattern]) for head in heads):
            yield f"{NOT_IN_LAB.name}: nothing is like {pattern}"


def _differences(ours: Mapping[Key, Object], theirs: Mapping[Key, Object]) -> Iterator[str]:
    for object_key in sorted(ours):
        if object_key not in theirs:
            yield f"{object_key}: only in the lab's chart"
            continue
        original = dict(facets(theirs[object_key]))
        for facet, value in facets(ours[object_key]):
            if value != original.get(facet):
                yield f"{object_key}: {facet}\n    lab:      {value}\n    original: {original.get(facet)}"
    yield from (f"{object_key}: only in the original" for object_key in sorted(set(theirs) - set(ours)))


def _matches(text: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(
            "charts-check was NOT RUN: it needs the original charts. Next: make charts-check CHARTS=<folder with them>"
        )
        return NOT_RUN
    helm = shutil.which("helm", path=f"{CHECKOUT / 'build' / 'bin'}") or shutil.which("helm")
    if helm is None:
        print("charts-check: no helm in build/bin or the path. Next: make programs", file=sys.stderr)
        return 2
    originals = Path(sys.argv[1])
    allowed = yaml.safe_load(NOT_IN_LAB.read_text())
    failed = False
    in_lab = releases({"lab": yaml.safe_load(LAB_VALUES.read_text())})["lab"]
    for name, release in ((name, in_lab[name]) for name in versions()["charts"]):
        ours = render(helm, HERE / name, release)
        found = list(differences(ours, render(helm, originals / name, release), allowed[name]))
        found += misrecorded(name, originals)
        print(f"{name} {release['version']}: {len(ours)} objects, {len(found)} differences", *found, sep="\n  ")
        failed |= bool(found)
    for name in sorted(pinned().keys() - versions()["charts"].keys()):
        if not (originals / name).is_dir():
            print(f"{name}: not compared, since the folder has no original of it")
            continue
        found = misrecorded(name, originals)
        print(f"{name} {pinned()[name]['version']}: its values alone, {len(found)} differences", *found, sep="\n  ")
        failed |= bool(found)
    return int(failed)


def misrecorded(name: str, originals: Path) -> list[str]:
    """Errors in the record of a chart's values."""
    if read(originals / name, HERE / name) == recorded(name):
        return []
    return ["its values are not those that are recorded. Next: PYTHONPATH=. python tools/record_charts.py FOLDER"]


if __name__ == "__main__":
    sys.exit(main())
