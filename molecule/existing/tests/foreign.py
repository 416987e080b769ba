"""An existing cluster: actions of its owner, with helm and kubectl, and of a user of the collection."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml
from cluster_dump import as_written, objects_of
from kubernetes import config
from programs import program
from server import ENVIRONMENT, EPHEMERAL, SCENARIO, VERSIONS

ROOT = SCENARIO.parents[1]
CLUSTERS = SCENARIO / "clusters"
ADMIN, GUEST = (EPHEMERAL / "inventory" / ".kubegpu" / name for name in ("kubeconfig", "guest"))
RIGHTS = ROOT / "docs" / "rights.yml"
CHARTS = VERSIONS["kubegpu_pinned_versions"]["charts"]
PROMETHEUS = "monitoring-kube-prometheus-prometheus"
WAIT_S = 600  # a busy machine is given time: nothing here measures it
# What each site scales, and what asks it.
DEPLOYMENT = "deployments ml/chat"


@dataclass(frozen=True)
class Case:
    """An existing way to scale on GPUs.

    plugin, exporter: kind and name of what is to be found, and its origin.
    apply:            pages of ../clusters; the HPA is `<case>-hpa`.
    releases:         chart, namespace and page of values by name of a release.
    says:             what the doctor says of it as it stands.
    mends:            what the owner does then; `still` is what the doctor says after it.
    load:             GPU-seconds a second that hold `replicas` in place, by its HPA as by ours.
    """

    plugin: dict[str, str]
    exporter: dict[str, str]
    adapter: str
    releases: dict[str, tuple[str, str, str]]
    load: float
    replicas: int
    says: set[str] = field(default_factory=set)
    still: set[str] = field(default_factory=set)
    apply: tuple[str, ...] = ()
    mends: Callable[[Owner], None] = field(default=lambda owner: None)
    before: Callable[[Owner], None] = field(default=lambda owner: None)
    after: Callable[[Owner], None] = field(default=lambda owner: None)


class Owner:
    """Has the administrator's kubeconfig, helm and kubectl."""

    def __init__(self, charts: str) -> None:
        self._charts = charts
        self._api = config.new_client_from_config(str(ADMIN))

    def kubectl(self, *words: str, told: str = "") -> str:
        return self._run(program("kubectl"), *words, told=told)

    def get(self, path: str) -> dict[str, Any]:
        """What a path of the API answers with."""
        answer = self._api.call_api(*self._api.param_serialize("GET", path, auth_settings=["BearerToken"]))
        return json.loads(answer.read())

    def apply(self, *manifests: Any) -> None:
        self.kubectl("apply", "--filename=-", told=yaml.safe_dump_all(manifests))

    def release(self, name: str, chart: str, namespace: str, values: dict[str, Any]) -> None:
        repository = CHARTS[chart]["repository"].removeprefix("https://")
        words = ("upgrade", "--install", name, chart, "--namespace", namespace, "--create-namespace", "--values=-")
        where = ("--repo", f"{self._charts}/{repository}", "--version", CHARTS[chart]["version"])
        self._run(program("helm"), *words, *where, "--wait", "--timeout=4m", told=json.dumps(values))

    def removes(self, name: str, namespace: str) -> None:
        self._run(program("helm"), "uninstall", name, "--namespace", namespace, "--wait")

    def dump(self) -> dict[str, Any]:
        """All objects, but for the replicas of what scales."""
        found = as_written(objects_of(self.get))
        del found[DEPLOYMENT]["spec"]["replicas"], found[DEPLOYMENT]["metadata"]["generation"]
        return found

    def _run(self, *words: object, told: str = "") -> str:
        argv = [str(word) for word in words]
        done = subprocess.run(
            argv, input=told, env={**os.environ, "KUBECONFIG": str(ADMIN)}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
        return done.stdout


def page(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CLUSTERS / f"{name}.yml").read_text()))


def our_rules() -> list[dict[str, Any]]:
    """Of the adapter, as docs/existing-clusters.md has them: below `custom`, and after these below `external`."""
    text = (ROOT / "docs" / "existing-clusters.md").read_text()
    custom, _external = re.findall(r"^```yaml\n(- seriesQuery:.*?)^```", text, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(custom)


def until(holds: Callable[[], Any], what: str, seconds: float = WAIT_S) -> None:
    ends = time.monotonic() + seconds
    seen = holds()
    while not seen:
        assert time.monotonic() < ends, f"after {seconds:.0f} s: {what}"
        time.sleep(1)
        seen = holds()


class Site:
    """A case on the cluster, and a user in a folder of its own. The user has the rights of docs/rights.yml alone."""

    def __init__(self, name: str, case: Case, owner: Owner) -> None:
        self.name, self.case, self.owner = name, case, owner
        self.folder = EPHEMERAL / name
        self.before: dict[str, Any] = {}
        self.autoscaler = {
            "namespace": "ml",
            "target": {"name": "chat"},
            "metric": "gpu",
            "target_value": 60,
            "max_replicas": 4,
            "scale_down": {
                "stabilization_window_seconds": 15,
                "policies": [{"type": "Pods", "value": 2, "period_seconds": 15}],
            },
        }
        self._inventory()

    def furnish(self) -> None:
        """What the owner did long ago."""
        self.case.before(self.owner)
        for name in self.case.apply:
            self.owner.apply(*page(name))
        self.release()
        until(lambda: self.gpus() == "8", "the plugin offers 8 GPUs")
        self.work()
        self.owner.apply(*page(f"{self.name}-hpa"))

    def release(self) -> None:
        for release, (chart, namespace, values) in self.case.releases.items():
            self.owner.release(release, chart, namespace, page(values)[0])

    def gpus(self) -> str:
        """What the node offers."""
        return self.owner.get("/api/v1/nodes")["items"][0]["status"]["allocatable"].get("nvidia.com/gpu", "")

    def work(self) -> None:
        """Have the workload's pods under the load that they are right for, and Prometheus see that."""
        self.owner.kubectl("-n", "ml", "scale", "deployment/chat", f"--replicas={self.case.replicas}")
        self.demand(self.case.load)
        until(lambda: self.replicas() == (self.case.replicas,) * 2, "the workload is ready")
        percent = 100 * self.case.load
        until(lambda: 0.7 * percent < self.busy() < 1.3 * percent, f"Prometheus has some {percent:.0f} % of all GPUs")

    def busy(self) -> float:
        """What Prometheus has of all GPUs together, percent; 0 without any."""
        path = f"/api/v1/namespaces/observability/services/{PROMETHEUS}:9090/proxy/api/v1/query"
        found = self.owner.get(f"{path}?query=sum(DCGM_FI_DEV_GPU_UTIL)")["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def clear(self) -> None:
        """Take away all but Prometheus and the workload."""
        self.owner.kubectl("-n", "ml", "delete", "hpa", "chat", "--ignore-not-found")
        for name in reversed(self.case.apply):
            words = ("delete", "--ignore-not-found", "--filename=-")
            self.owner.kubectl(*words, told=yaml.safe_dump_all(page(name)))
        for release, (_chart, namespace, _values) in self.case.releases.items():
            self.owner.removes(release, namespace)
        self.case.after(self.owner)

    def allow_our_metrics(self) -> None:
        """The rules that an existing adapter needs."""
        for release, (chart, namespace, values) in self.case.releases.items():
            if chart == "prometheus-adapter":
                (wanted,) = page(values)
                wanted["rules"]["custom"] += our_rules()
                self.owner.release(release, chart, namespace, wanted)

    def demand(self, gpus: float) -> None:
        """Have the load generator ask for so much."""
        self.owner.kubectl("-n", "ml", "rollout", "status", "deployment/chat-load")
        path = f"/api/v1/namespaces/ml/services/chat-load:80/proxy/load?gpus={gpus}"
        self.owner.kubectl("replace", "--raw", path, "--filename=-", told="{}")

    def replicas(self) -> tuple[int, int]:
        """Wanted, and ready."""
        found = self.owner.get("/apis/apps/v1/namespaces/ml/deployments/chat")
        return found["spec"]["replicas"], found["status"].get("readyReplicas", 0)

    def rests(self) -> bool:
        """Whether an HPA has its metric, and as many replicas as it is to have."""
        hpa = self.owner.get("/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat")
        conditions = {condition["type"]: condition["status"] for condition in hpa["status"].get("conditions", ())}
        return conditions.get("ScalingActive") == "True" and self.replicas() == (self.case.replicas,) * 2

    @contextmanager
    def watched(self) -> Iterator[set[int]]:
        """Gives each number of replicas that the workload is told to have meanwhile."""
        seen = {self.replicas()[0]}
        words = (program("kubectl"), "--kubeconfig", ADMIN, "-n", "ml", "get", "deployment", "chat", "--watch")
        with subprocess.Popen(
            [*words, "-o", "jsonpath={.spec.replicas}{'\\n'}"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            lines, begun = process.stdout, Event()

            def read() -> None:
                for line in lines:
                    seen.add(int(line))
                    begun.set()

            reader = Thread(target=read)
            reader.start()
            try:
                assert begun.wait(WAIT_S)
                yield seen
            finally:
                process.terminate()
                reader.join()

    def module(self, name: str, **options: Any) -> dict[str, Any]:
        """What a module answers to the user."""
        options = {"kubeconfig": str(self.folder / "kubeconfig"), "context": "theirs", **options}
        words = ("ansible", "localhost", "-m", f"kubegpu.autoscale.{name}", "-a", json.dumps(options))
        return json.loads(re.sub(r"^.*?=> ", "", self._play(*words).stdout, count=1, flags=re.DOTALL))

    def play(self, playbook: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        words = ("ansible-playbook", "-i", str(self.folder), f"kubegpu.autoscale.{playbook}")
        return self._play(*words, "--extra-vars", json.dumps(variables))

    def findings(self) -> tuple[int, set[str]]:
        """How the doctor ends, and what it says."""
        done = self.play("doctor", gpu_doctor_grace=False)
        report = json.loads((self.folder / ".kubegpu" / "doctor" / "report.json").read_text())
        assert "forbidden" not in json.dumps(report["not_checked"])
        return done.returncode, {finding["id"] for finding in report["findings"]}

    def write(self, **more: Any) -> None:
        """What the user writes into group_vars/all.yml."""
        variables = {
            "kubegpu_kubeconfig": str(self.folder / "kubeconfig"),
            "kubegpu_context": "theirs",
            "gpu_autoscaling_autoscalers": [{**self.autoscaler, **more}],
        }
        (self.folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables))

    def _inventory(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(ROOT / "inventories" / "existing-cluster", self.folder)
        known = yaml.safe_load(GUEST.read_text())
        context = {**known["contexts"][0], "name": "theirs"}
        known["clusters"].append({"name": "elsewhere", "cluster": {"server": "https://192.0.2.1:6443"}})
        elsewhere = {"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "admin"}}
        known |= {"contexts": [context, elsewhere], "current-context": "elsewhere"}
        (self.folder / "kubeconfig").write_text(json.dumps(known))
        self.write()

    def _play(self, *words: str) -> subprocess.CompletedProcess[str]:
        program, *rest = words
        argv = [str(Path(sys.executable).with_name(program)), *rest]
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**ENVIRONMENT, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
            capture_output=True,
            text=True,
        )
        print(done.stdout, done.stderr)  # pytest shows it when the test fails
        return done


def differing(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Titles of objects that came, went or changed."""
    return {title for title in {*before, *after} if before.get(title) != after.get(title)}
