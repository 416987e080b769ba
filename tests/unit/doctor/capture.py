"""Write down what a cluster that runs answers to the doctor, as a file for answers/. Changes nothing in the cluster.

It has all that the doctor reads: nodes, Services, DaemonSets, autoscalers and what they scale, the pods beside them;
the objects of the Prometheus operator, the adapter's rules, series with their labels. So it has the names and addresses
of nodes, namespaces, workloads and images: look through it before you pass it on.
What is not: Secrets, which the doctor does not read; values of environment variables but the exporter's and NVIDIA's;
values of options that may be a secret; whole manifests in annotations; managers of fields that it does not read.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from collection import install

install()
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import examine
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

HIDDEN = "hidden"
# Variables that the doctor judges.
SHOWN_VARIABLES = re.compile(r"(DCGM|NVIDIA|KUBERNETES)_")
SECRET_OPTION = re.compile(r"(--?[\w.-]*(?:pass|secret|token|key|credential|auth)[\w.-]*=).+", re.IGNORECASE)
# Of these the doctor reads who has applied what.
WITH_MANAGERS = ("deployments", "statefulsets", "horizontalpodautoscalers")


class Recorder:
    """A transport that keeps what is answered, without what nobody should see."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.answers: dict[str, Any] = {}

    def __call__(self, method: str, path: str, *, query: Mapping[str, str], **options: Any) -> Any:
        if "continue" in query:
            sys.exit(f"capture -> {path}: more than one page\n  fix:  capture a smaller cluster")
        key = f"{path}?query={query['query']}" if "query" in query else path
        try:
            answer = self._transport(method, path, query=query, **options)
        except ApiError as error:
            if not error.is_not_found and error.status:
                self.answers[key] = {"kind": "Status", "code": error.status, "message": error.message}
            raise
        if method == "GET" and ("query" not in query or answer["data"]["result"]):
            self.answers[key] = shown(answer, with_managers=path.endswith(WITH_MANAGERS))
        return answer


def shown(node: Any, *, with_managers: bool) -> Any:
    """A copy of an answer without what may be a secret, or is pruned_fields."""
    if isinstance(node, list):
        return [shown(item, with_managers=with_managers) for item in node]
    if not isinstance(node, dict):
        return SECRET_OPTION.sub(rf"\1{HIDDEN}", node) if isinstance(node, str) else node
    found = {key: shown(value, with_managers=with_managers) for key, value in node.items()}
    if not with_managers:
        found.pop("managedFields", None)
    for name in found.get("annotations") or ():
        if name == "kubectl.kubernetes.io/last-applied-configuration":
            found["annotations"][name] = HIDDEN
    for variable in found.get("env") or ():
        if "value" in variable and not SHOWN_VARIABLES.match(variable["name"]):
            variable["value"] = HIDDEN
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--about", default="", help="whose cluster it is, in a sentence")
    parser.add_argument("--namespace", default="monitoring", help="of Prometheus (default: %(default)s)")
    parser.add_argument(
        "--service", default="kube-prometheus-stack-prometheus", help="Prometheus (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=9090, help="of that Service (default: %(default)s)")
    arguments = parser.parse_args()
    prometheus = {"namespace": arguments.namespace, "service": arguments.service, "port": arguments.port}
    try:
        recorder = Recorder(connect({"kubeconfig": str(arguments.kubeconfig)}))
        kube = KubeClient(recorder)
        client = PrometheusClient(kube.get_raw, **prometheus)
        report = examine(kube, client, scope=Scope(), facts={}, history_s=0, grace=False, fail_on="never").result
    except (ApiError, HopError) as error:
        sys.exit(f"capture -> cluster: {error}\n  fix:  kubectl --kubeconfig {arguments.kubeconfig} get nodes")
    if report["findings"]:
        names = ", ".join(finding["id"] for finding in report["findings"])
        sys.exit(f"capture -> doctor: it finds {names}\n  fix:  mend that first: a file is about a healthy cluster")
    found = {
        "origin": "captured",
        "about": arguments.about,
        "captured": datetime.now(UTC).date().isoformat(),
        "prometheus": prometheus,
        "unknown": [hop["id"] for hop in report["hops"] if hop["status"] == "unknown"],
        "not_checked": [unchecked["check"] for unchecked in report["not_checked"]],
        "cases": {},
        "answers": {},
    }
    # An answer a line, so that a later capture can be compared with it.
    lines = ",\n".join(f"  {json.dumps(path)}: {json.dumps(body)}" for path, body in sorted(recorder.answers.items()))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps(found, indent=1).replace('"answers": {}', f'"answers": {{\n{lines}\n }}') + "\n"
    )
    print(f"{arguments.out}: {len(recorder.answers)} answers, {arguments.out.stat().st_size // 1024} KiB")
    print(
        "It has names and addresses of nodes, namespaces, workloads and images: look through it before you pass it on."
    )


if __name__ == "__main__":
    main()
