"""The existing cluster that all files share: a Prometheus with its owner's names, a workload, and a user."""

from __future__ import annotations

import pytest
import yaml
from foreign import PROMETHEUS, RIGHTS, ROOT, Owner, page
from testinfra.host import Host


@pytest.fixture(scope="module")
def owner(host: Host) -> Owner:
    owner = Owner(host.ansible.get_variables()["kubegpu_chart_mirror"])
    for namespace in ("ml", "gpus", "gpu-operator", "adapters"):
        owner.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    scripts = {path.name: path.read_text() for path in (ROOT / "roles" / "gpu_workload" / "files").glob("*.py")}
    owner.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts", "namespace": "ml"}, "data": scripts}
    )
    owner.apply(*page("workload"))
    rights = yaml.safe_load(RIGHTS.read_text().replace("kube-prometheus-stack-prometheus", PROMETHEUS))
    configs = [rule for rule in rights["rules"] if rule["resources"] == ["configmaps"]]
    configs[0]["resourceNames"] = ["metrics-prometheus-adapter"]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": rights["metadata"]["name"]}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "guest"}]
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    owner.apply(rights, {**binding, "metadata": {"name": "guest"}, "roleRef": role, "subjects": subjects})
    return owner
