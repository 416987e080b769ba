"""Ways to break the lab, hop by hop, each with the finding that the doctor has to come to.

Each breaks one thing, as somebody would or as it happens by itself, and puts it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_manifests import gpu_autoscaler_manifests
from live_lab import MONITORING, PLUGIN, SAMPLE, STACK, WORKLOADS, Lab, Manifest, wait_until

Break = Callable[[Lab], AbstractContextManager[None]]

EXPORTER = "dcgm-exporter"
ADAPTER = "prometheus-adapter"
RULE = "kubegpu-gpu"
API = "v1beta1.custom.metrics.k8s.io"
HPA = "HorizontalPodAutoscaler"
UTILISATION = "DCGM_FI_DEV_GPU_UTIL"


@dataclass(frozen=True)
class Fault:
    """One way to break the chain.

    finding:   id of what the doctor has to say, and nothing else.
    rows:      of the catalogue in docs/doctor/README.md: what happens there, happens.
    symptoms:  rows of which only what can be seen happens, by another cause.
    often:     in each `make test`; the others in `make faults`.
    outlasts:  in `make faults` it lasts until the doctor names it by default, past the grace. One of each hop.
    """

    name: str
    finding: str
    rows: tuple[int, ...]
    symptoms: tuple[int, ...]
    often: bool
    outlasts: bool
    breaking: Break


FAULTS: list[Fault] = []


def fault(
    finding: str, *rows: int, symptoms: tuple[int, ...] = (), often: bool = False, outlasts: bool = False
) -> Callable[[Callable[[Lab], Iterator[None]]], None]:
    def register(function: Callable[[Lab], Iterator[None]]) -> None:
        FAULTS.append(Fault(function.__name__, finding, rows, symptoms, often, outlasts, contextmanager(function)))

    return register


# ---- what many of them change


def container(workload: Manifest) -> Manifest:
    return workload["spec"]["template"]["spec"]["containers"][0]


def with_environment(**variables: str | None) -> Callable[[Manifest], None]:
    """Variables of the first container; None takes one away."""

    def change(workload: Manifest) -> None:
        kept = [variable for variable in container(workload).get("env") or () if variable["name"] not in variables]
        new = [{"name": name, "value": value} for name, value in variables.items() if value is not None]
        container(workload)["env"] = kept + new

    return change


def with_image_missing(workload: Manifest) -> None:
    container(workload)["image"] = container(workload)["image"].rpartition(":")[0] + ":no-such-version"


def without_runtime_class(workload: Manifest) -> None:
    workload["spec"]["template"]["spec"]["runtimeClassName"] = None


def with_node_selector(**labels: str) -> Callable[[Manifest], None]:
    def change(workload: Manifest) -> None:
        workload["spec"]["template"]["spec"]["nodeSelector"] = labels

    return change


def with_replicas(number: int) -> Callable[[Manifest], None]:
    def change(workload: Manifest) -> None:
        workload["spec"]["replicas"] = number

    return change


def with_endpoint(**fields: Any) -> Callable[[Manifest], None]:
    """Of a ServiceMonitor: its only endpoint with other fields."""

    def change(monitor: Manifest) -> None:
        monitor["spec"]["endpoints"][0].update(fields)

    return change


def relabelled(*steps: Manifest) -> Callable[[Manifest], None]:
    """A ServiceMonitor that does more with the series than it did."""

    def change(monitor: Manifest) -> None:
        monitor["spec"]["endpoints"][0]["metricRelabelings"] += steps

    return change


def with_at_least(replicas: int) -> Callable[[Manifest], None]:
    def change(hpa: Manifest) -> None:
        hpa["spec"]["minReplicas"] = replicas

    return change


def selecting_by_release(selector: str) -> Callable[[Manifest], None]:
    """A Prometheus that selects as the chart's values have it by default."""

    def change(prometheus: Manifest) -> None:
        prometheus["spec"][selector] = {"matchLabels": {"release": STACK}}

    return change


def without_release(manifest: Manifest) -> None:
    (manifest["metadata"].get("labels") or {}).pop("release", None)


def with_expression(expression: Callable[[str], str]) -> Callable[[Manifest], None]:
    """A PrometheusRule whose recording rule is made of the one that it was."""

    def change(rule: Manifest) -> None:
        first = rule["spec"]["groups"][0]["rules"][0]
        first["expr"] = expression(first["expr"])

    return change


def recording(lab: Lab, record: str, expression: str) -> Manifest:
    """A team's PrometheusRule beside the managed one."""
    found = another(lab.get("PrometheusRule", RULE, MONITORING), "by-a-team")
    found["metadata"]["labels"] = {"release": STACK}
    found["spec"] = {
        "groups": [{"name": "by-a-team", "interval": "2s", "rules": [{"record": record, "expr": expression}]}]
    }
    return found


def with_option(option: str, value: str) -> Callable[[Manifest], None]:
    """A command line option `--option=value` of the first container."""

    def change(workload: Manifest) -> None:
        its = container(workload)
        its["args"] = [argument for argument in its["args"] if not argument.startswith(f"--{option}=")] + [
            f"--{option}={value}"
        ]

    return change


def with_rules_for(name: str, series: str) -> Callable[[Manifest], None]:
    """The adapter's ConfigMap with rules for other series than those that are recorded for pods."""

    def change(config: Manifest) -> None:
        text = config["data"]["config.yaml"].replace("namespace_pod:(.+):avg", name)
        config["data"]["config.yaml"] = text.replace("namespace_pod:.+:avg", series)

    return change


@contextmanager
def reconfigured(lab: Lab, config: str, change: Callable[[Manifest], None], kind: str, workload: str) -> Iterator[None]:
    """A ConfigMap that is another for a while, and is read by its workload at its start only."""
    try:
        with lab.changed("ConfigMap", config, change):
            lab.restart(kind, workload)
            yield
    finally:
        lab.restart(kind, workload)


def another(manifest: Manifest, name: str) -> Manifest:
    """A copy of an object under another name, without an owner."""
    found = deepcopy(manifest)
    found["metadata"] = {"name": name, "namespace": manifest["metadata"].get("namespace")}
    found.pop("status", None)
    return found


def second_deployment(lab: Lab, name: str, *, gpus: Manifest | None = None) -> Manifest:
    """A workload on the sample's GPUs, one replica, that does nothing; `gpus` are its limits."""
    found = another(lab.get("Deployment", SAMPLE, WORKLOADS), name)
    labels = {"app.kubernetes.io/name": name}
    found["spec"]["replicas"] = 1
    found["spec"]["selector"]["matchLabels"] = labels
    found["spec"]["template"]["metadata"] = {"labels": labels}
    container(found).update(command=["python3", "-m", "http.server", "8000", "--directory", "/scripts"], args=[])
    for probe in ("readinessProbe", "livenessProbe"):
        container(found)[probe]["httpGet"]["path"] = "/"
    if gpus is not None:
        container(found)["resources"] = {"limits": gpus}
    return found


def second_autoscaler(lab: Lab, name: str, target: str, metric: str = "gpu") -> Manifest:
    """An HPA like the sample's for another Deployment."""
    found = another(lab.get(HPA, SAMPLE, WORKLOADS), name)
    found["spec"]["scaleTargetRef"]["name"] = target
    found["spec"]["maxReplicas"] = 2
    found["spec"]["metrics"][0]["pods"]["metric"] = {"name": metric}
    return found


def autoscaler_of_ours(name: str, metric: str) -> list[Manifest]:
    """The rule and the HPA that gpu_autoscaler makes for another Deployment."""
    told = {"namespace": WORKLOADS, "target": {"name": name}, "max_replicas": 2, "metric": metric}
    return gpu_autoscaler_manifests([told])


def restart_users_of_the_driver(lab: Lab) -> None:
    """Who held the driver that is gone does not find the new one."""
    lab.restart("DaemonSet", PLUGIN, PLUGIN)
    lab.restart("DaemonSet", EXPORTER)
    # Without the plugin the kubelet refuses pods with GPUs for good, and they stay behind.
    wait_until(lambda: lab.is_rolled_out("DaemonSet", PLUGIN, PLUGIN), "the device plugin is back", 120)
    lab.restart("Deployment", SAMPLE, WORKLOADS)


@contextmanager
def time_sliced(lab: Lab, replicas: int = 2, gpu: int | None = None) -> Iterator[None]:
    """NVIDIA's device plugin gives each GPU, or this one alone, to so many pods."""
    name = "time-slicing"
    sharing = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": replicas}]}}
    config: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": PLUGIN},
        "data": {"config.yaml": json.dumps({"version": "v1", "sharing": sharing})},
    }

    def configured(plugin: Manifest) -> None:
        pod = plugin["spec"]["template"]["spec"]
        pod["volumes"] = [*pod["volumes"], {"name": name, "configMap": {"name": name}}]
        container(plugin)["volumeMounts"] += [{"name": name, "mountPath": "/config"}]
        seen = {} if gpu is None else {"NVIDIA_VISIBLE_DEVICES": str(gpu)}
        with_environment(CONFIG_FILE="/config/config.yaml", **seen)(plugin)

    slices = str(replicas * (len(lab.gpus()) if gpu is None else 1))
    with (
        lab.beside(config),
        lab.changed("DaemonSet", PLUGIN, configured, PLUGIN),
    ):
        wait_until(lambda: lab.allocatable() == slices, f"the GPU node offers {slices} slices", 120)
        yield


@contextmanager
def without_profiling(lab: Lab) -> Iterator[None]:
    """An exporter that is not told of the profiling counters."""

    def unprofiled(counters: Manifest) -> None:
        lines = counters["data"]["metrics"].splitlines(keepends=True)
        counters["data"]["metrics"] = "".join(line for line in lines if "_PROF_" not in line)

    with reconfigured(lab, "exporter-metrics-config-map", unprofiled, "DaemonSet", EXPORTER):
        yield


# ---- GPU nodes and drivers


@fault("NODE_NOT_READY", outlasts=True)
def the_kubelet_stops(lab: Lab) -> Iterator[None]:
    with lab.on_gpu_server("systemctl stop kubelet", "systemctl start kubelet"):
        yield


@fault("DRIVER_NEEDS_REBOOT", often=True)
def a_driver_is_installed_that_is_not_loaded(lab: Lab) -> Iterator[None]:
    # The stand-in for the driver says its version there, as the kernel module does.
    told = "/proc/driver/nvidia/version"
    installed = lab.facts["driver_version_installed"]
    rewrite = "sed s/{}/{}/ " + told + " > /run/version && cat /run/version > " + told
    with lab.on_gpu_server(rewrite.format(installed, "570.86.15"), rewrite.format("570.86.15", installed)):
        yield


@fault("DRIVER_BROKEN", 1)
def the_driver_is_unloaded(lab: Lab) -> Iterator[None]:
    try:
        with lab.on_gpu_server("systemctl stop nvidia-persistenced", "systemctl start nvidia-persistenced"):
            yield
    finally:
        restart_users_of_the_driver(lab)


# ---- device plugin and allocatable GPUs


@fault("DEVICE_PLUGIN_MISSING", 3)
def the_device_plugin_is_deleted(lab: Lab) -> Iterator[None]:
    with lab.without("DaemonSet", PLUGIN, PLUGIN):
        yield


@fault("DEVICE_PLUGIN_NO_NVML", 1, often=True)
def the_device_plugin_runs_without_the_nvidia_runtime(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", PLUGIN, without_runtime_class, PLUGIN):
        yield


@fault("DEVICE_PLUGIN_NOT_READY", 3, outlasts=True)
def the_image_of_the_device_plugin_is_missing(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", PLUGIN, with_image_missing, PLUGIN):
        yield


@fault("DEVICE_PLUGIN_NOT_ON_NODE", 3)
def the_device_plugin_selects_other_nodes(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", PLUGIN, with_node_selector(pool="other"), PLUGIN):
        yield


@fault("DEVICE_PLUGIN_NOT_ON_NODE")
def the_label_of_the_gpu_node_is_gone(lab: Lab) -> Iterator[None]:
    """Plugin and exporter leave it. The kubelet then gives no GPU any more, which takes some seconds."""

    def unlabelled(node: Manifest) -> None:
        del node["metadata"]["labels"]["nvidia.com/gpu.present"]

    def gives_none() -> bool:
        return lab.get("Node", lab.gpu_node, None)["status"]["allocatable"].get("nvidia.com/gpu") == "0"

    with lab.changed("Node", lab.gpu_node, unlabelled, None):
        wait_until(gives_none, "the kubelet gives no GPU any more", 120)
        yield


@fault("NODE_WITHOUT_GPUS", 3)
def all_gpus_fall_off_the_bus(lab: Lab) -> Iterator[None]:
    gpus = lab.gpus()
    try:
        lab.gpus_fail(*gpus)
        yield
    finally:
        lab.driver(*(f"set {gpu} xid 0" for gpu in gpus))
        lab.restart("DaemonSet", PLUGIN, PLUGIN)


@fault("GPU_UNHEALTHY", 3, often=True)
def an_xid_error_takes_a_free_gpu_out_of_use(lab: Lab) -> Iterator[None]:
    gpu = lab.free_gpu()
    try:
        lab.gpus_fail(gpu)
        yield
    finally:
        lab.driver(f"set {gpu} xid 0")
        lab.restart("DaemonSet", PLUGIN, PLUGIN)


# ---- node labels


@fault("NODE_LABEL_MISSING", 5, often=True, outlasts=True)
def the_exporter_selects_a_label_that_the_node_lacks(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", EXPORTER, with_node_selector(**{"nvidia.com/gpu.deploy.dcgm-exporter": "true"})):
        yield


@fault("NODE_LABEL_MISSING")
def the_exporter_asks_for_what_only_feature_discovery_labels(lab: Lab) -> Iterator[None]:
    wanted = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "Exists"}]}]}

    def picky(daemon_set: Manifest) -> None:
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}
        daemon_set["spec"]["template"]["spec"]["affinity"] = affinity

    with lab.changed("DaemonSet", EXPORTER, picky):
        yield


# ---- dcgm-exporter


@fault("EXPORTER_MISSING")
def the_exporter_is_deleted(lab: Lab) -> Iterator[None]:
    with lab.without("DaemonSet", EXPORTER):
        yield


@fault("EXPORTER_NOT_ON_NODE", 5)
def a_taint_that_workloads_tolerate_keeps_the_exporter_away(lab: Lab) -> Iterator[None]:
    taint = {"key": "dedicated", "value": "inference", "effect": "NoSchedule"}

    def tainted(node: Manifest) -> None:
        node["spec"]["taints"] = [*(node["spec"].get("taints") or ()), taint]

    def tolerant(workload: Manifest) -> None:
        pod = workload["spec"]["template"]["spec"]
        tolerated = [*(pod.get("tolerations") or ()), {"key": "dedicated", "operator": "Exists"}]
        pod["tolerations"] = tolerated

    with (
        lab.changed("Deployment", SAMPLE, tolerant, WORKLOADS),
        lab.changed("Node", lab.gpu_node, tainted, None),
    ):
        lab.restart("DaemonSet", EXPORTER)
        yield


@fault("EXPORTER_NO_NVML", 1)
def the_exporter_runs_without_the_nvidia_runtime(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", EXPORTER, without_runtime_class):
        yield


@fault("EXPORTER_NOT_READY", outlasts=True)
def the_image_of_the_exporter_is_missing(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", EXPORTER, with_image_missing):
        yield


@fault("EXPORTER_SERVES_NOTHING", symptoms=(2,), often=True)
def the_driver_is_reloaded_under_the_exporter(lab: Lab) -> Iterator[None]:
    lab.gpu_server.check_output("systemctl restart nvidia-persistenced")
    try:
        yield
    finally:
        restart_users_of_the_driver(lab)


@fault("EXPORTER_PROBES_KILL", symptoms=(6, 7))
def the_liveness_probe_ends_the_exporter(lab: Lab) -> Iterator[None]:
    def impatient(workload: Manifest) -> None:
        container(workload)["livenessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 1, "failureThreshold": 1}
        container(workload)["livenessProbe"]["httpGet"]["path"] = "/no-such-page"

    with lab.changed("DaemonSet", EXPORTER, impatient):
        yield


@fault("EXPORTER_NAMES_NO_PODS", 9, often=True)
def the_exporter_is_not_told_to_name_pods(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", EXPORTER, with_environment(DCGM_EXPORTER_KUBERNETES="false")):
        yield


@fault("EXPORTER_NO_POD_RESOURCES", 9)
def the_exporter_cannot_ask_the_kubelet(lab: Lab) -> Iterator[None]:
    def unmounted(workload: Manifest) -> None:
        pod = workload["spec"]["template"]["spec"]
        pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "pod-gpu-resources"]
        container(workload)["volumeMounts"] = [
            mount for mount in container(workload)["volumeMounts"] if mount["name"] != "pod-gpu-resources"
        ]

    with lab.changed("DaemonSet", EXPORTER, unmounted):
        yield


@fault("EXPORTER_COLLECTS_SLOWLY", 23)
def the_exporter_collects_every_half_minute(lab: Lab) -> Iterator[None]:
    with lab.changed("DaemonSet", EXPORTER, with_environment(DCGM_EXPORTER_INTERVAL="30000")):
        yield


@fault("EXPORTER_SHARED_GPUS", 13)
def gpus_are_shared_and_the_exporter_does_not_know(lab: Lab) -> Iterator[None]:
    with time_sliced(lab):
        yield


@fault("EXPORTER_SHARED_GPUS_BLIND", 13)
def gpus_are_shared_and_the_exporter_sees_no_processes(lab: Lab) -> Iterator[None]:
    with (
        time_sliced(lab),
        lab.changed("DaemonSet", EXPORTER, with_environment(KUBERNETES_VIRTUAL_GPUS="true")),
    ):
        yield


@fault("EXPORTER_IMPOSSIBLE_VALUES", 18, often=True)
def a_free_gpu_reads_an_impossible_value(lab: Lab) -> Iterator[None]:
    gpu = lab.free_gpu()
    try:
        lab.driver(f"set {gpu} util 2147483632")
        yield
    finally:
        lab.driver(f"set {gpu} util auto")


@fault("EXPORTER_LOSES_A_GPU", 18)
def all_gpus_read_impossible_values(lab: Lab) -> Iterator[None]:
    gpus = lab.gpus()
    try:
        lab.driver(*(f"set {gpu} {field} 2147483632" for gpu in gpus for field in ("util", "prof")))
        yield
    finally:
        lab.driver(*(f"set {gpu} {field} auto" for gpu in gpus for field in ("util", "prof")))


@fault("EXPORTER_TWICE", 21)
def a_second_exporter_is_installed(lab: Lab) -> Iterator[None]:
    with lab.beside(another(lab.get("DaemonSet", EXPORTER, MONITORING), "another-dcgm-exporter")):
        yield


@fault("PROFILING_FROZEN", 16)
def profiling_of_a_busy_gpu_stays_at_0(lab: Lab) -> Iterator[None]:
    gpu = lab.free_gpu()
    try:
        lab.driver(f"set {gpu} util 97", f"set {gpu} prof 0")
        yield
    finally:
        lab.driver(f"set {gpu} util auto", f"set {gpu} prof auto")


@fault("PROFILING_MISSING", 15)
def an_autoscaler_wants_profiling_that_the_exporter_lacks(lab: Lab) -> Iterator[None]:
    with (
        lab.beside(second_deployment(lab, "chat"), *autoscaler_of_ours("chat", "gpu_compute")),
        without_profiling(lab),
    ):
        yield


@fault("METRIC_BLANK_ON_MIG", symptoms=(14,))
def an_autoscaler_reads_utilisation_of_mig_instances(lab: Lab) -> Iterator[None]:
    resource = "nvidia.com/mig-1g.5gb"
    with (
        lab.offering(resource, 4),
        lab.beside(second_deployment(lab, "chat", gpus={resource: "1"})),
        lab.beside(*autoscaler_of_ours("chat", "gpu_util")),
    ):
        yield


@fault("EXPORTER_RESOURCE_NAMES", symptoms=(12,))
def the_pods_ask_for_a_resource_that_the_exporter_does_not_know(lab: Lab) -> Iterator[None]:
    resource = "nvidia.com/rtx4090"
    with (
        lab.offering(resource, 4),
        lab.beside(second_deployment(lab, "chat", gpus={resource: "1"})),
        lab.beside(second_autoscaler(lab, "chat", "chat")),
    ):
        yield


@fault("EXPORTER_FIELD_MISSING", 19)
def the_counters_lack_what_the_metric_is_made_of(lab: Lab) -> Iterator[None]:
    def shortened(counters: Manifest) -> None:
        lines = counters["data"]["metrics"].splitlines(keepends=True)
        kept = [line for line in lines if "_PROF_" not in line and UTILISATION not in line]
        counters["data"]["metrics"] = "".join(kept)

    with reconfigured(lab, "exporter-metrics-config-map", shortened, "DaemonSet", EXPORTER):
        yield


@fault("EXPORTER_MOUNT_FAILS", 24)
def a_folder_of_the_host_is_not_there(lab: Lab) -> Iterator[None]:
    def asking_for_it(workload: Manifest) -> None:
        folder = {"path": "/home/kubernetes/bin/nvidia", "type": "Directory"}
        workload["spec"]["template"]["spec"]["volumes"].append({"name": "driver", "hostPath": folder})
        container(workload)["volumeMounts"].append({"name": "driver", "mountPath": "/usr/local/nvidia"})

    with lab.changed("DaemonSet", EXPORTER, asking_for_it):
        yield


# ---- Prometheus scrapes the exporter


@fault("PROMETHEUS_UNREACHABLE")
def prometheus_is_gone(lab: Lab) -> Iterator[None]:
    with lab.changed("Prometheus", f"{STACK}-prometheus", with_replicas(0)):
        yield


@fault("MONITOR_NOT_SELECTED", 25)
def the_monitor_lacks_the_label_of_the_release(lab: Lab) -> Iterator[None]:
    with (
        lab.changed("Prometheus", f"{STACK}-prometheus", selecting_by_release("serviceMonitorSelector")),
        lab.changed("ServiceMonitor", EXPORTER, without_release),
    ):
        yield


@fault("MONITOR_FITS_NO_SERVICE", 26)
def the_monitor_asks_for_another_port(lab: Lab) -> Iterator[None]:
    with lab.changed("ServiceMonitor", EXPORTER, with_endpoint(port="gpu-metrics")):
        yield


@fault("MONITOR_FITS_NO_SERVICE", 26)
def the_monitor_selects_another_service(lab: Lab) -> Iterator[None]:
    def elsewhere(monitor: Manifest) -> None:
        monitor["spec"]["selector"]["matchLabels"] = {"app": "nvidia-dcgm-exporter"}

    with lab.changed("ServiceMonitor", EXPORTER, elsewhere):
        yield


@fault("MONITOR_MISSING")
def the_monitor_is_deleted(lab: Lab) -> Iterator[None]:
    with lab.without("ServiceMonitor", EXPORTER):
        yield


@fault("MONITOR_INTERVAL_IGNORED", 27)
def the_interval_stands_in_an_endpoint_of_its_own(lab: Lab) -> Iterator[None]:
    def torn(monitor: Manifest) -> None:
        [endpoint] = monitor["spec"]["endpoints"]
        monitor["spec"]["endpoints"] = [endpoint, {"interval": "1s"}]
        del endpoint["interval"], endpoint["scrapeTimeout"]

    with lab.changed("ServiceMonitor", EXPORTER, torn):
        yield


@fault("TARGET_DOWN", outlasts=True)
def the_exporter_is_asked_for_another_page(lab: Lab) -> Iterator[None]:
    with lab.changed("ServiceMonitor", EXPORTER, with_endpoint(path="/no-such-page")):
        yield


def with_limits(**limits: int) -> Callable[[Manifest], None]:
    """Of a ServiceMonitor: what Prometheus takes of its targets at most."""

    def change(monitor: Manifest) -> None:
        monitor["spec"].update(limits)

    return change


@fault("TARGET_DOWN")
def the_exporter_serves_more_samples_than_its_monitor_allows(lab: Lab) -> Iterator[None]:
    with lab.changed("ServiceMonitor", EXPORTER, with_limits(sampleLimit=1)):
        yield


@fault("TARGET_DOWN")
def the_labels_of_the_exporter_are_longer_than_its_monitor_allows(lab: Lab) -> Iterator[None]:
    with lab.changed("ServiceMonitor", EXPORTER, with_limits(labelValueLengthLimit=2)):
        yield


@fault("MONITOR_REJECTED")
def the_monitor_names_a_secret_that_is_missing(lab: Lab) -> Iterator[None]:
    credentials = {"credentials": {"name": "no-such-secret", "key": "token"}}
    with lab.changed("ServiceMonitor", EXPORTER, with_endpoint(authorization=credentials)):
        yield


@fault("TARGET_MISSING")
def a_relabeling_drops_the_target(lab: Lab) -> Iterator[None]:
    drop = {"action": "drop", "sourceLabels": ["__meta_kubernetes_namespace"], "regex": MONITORING}
    with lab.changed("ServiceMonitor", EXPORTER, with_endpoint(relabelings=[drop])):
        yield


# ---- series name the pods


@fault("POD_WITHOUT_GPU_LIMIT", 11, often=True)
def a_workload_has_no_gpu_limit(lab: Lab) -> Iterator[None]:
    with (
        lab.beside(second_deployment(lab, "chat", gpus={"memory": "128Mi"})),
        lab.beside(second_autoscaler(lab, "chat", "chat")),
    ):
        yield


@fault("EXPORTER_NO_POD_LABELS", 9, 32)
def a_relabeling_drops_the_names_of_pods(lab: Lab) -> Iterator[None]:
    with lab.changed("ServiceMonitor", EXPORTER, relabelled({"action": "labeldrop", "regex": "pod|namespace"})):
        yield


@fault("SERIES_WITHOUT_NAMESPACE", 31)
def a_relabeling_drops_the_namespace(lab: Lab) -> Iterator[None]:
    with lab.changed("ServiceMonitor", EXPORTER, relabelled({"action": "labeldrop", "regex": "namespace"})):
        yield


@fault("POD_WITHOUT_SERIES", outlasts=True)
def a_relabeling_drops_one_workload(lab: Lab) -> Iterator[None]:
    drop = {"action": "drop", "sourceLabels": ["pod"], "regex": "chat-.*"}
    with (
        lab.beside(second_deployment(lab, "chat")),
        lab.beside(second_autoscaler(lab, "chat", "chat")),
        lab.changed("ServiceMonitor", EXPORTER, relabelled(drop)),
    ):
        yield


@fault("PROMETHEUS_REPLICAS_DIFFER")
def prometheus_is_split_into_shards(lab: Lab) -> Iterator[None]:
    def sharded(prometheus: Manifest) -> None:
        prometheus["spec"]["shards"] = 2

    with lab.changed("Prometheus", f"{STACK}-prometheus", sharded):
        yield


# ---- recording rules


@fault("RULE_NOT_SELECTED", 28)
def the_rule_lacks_the_label_of_the_release(lab: Lab) -> Iterator[None]:
    with (
        lab.changed("Prometheus", f"{STACK}-prometheus", selecting_by_release("ruleSelector")),
        lab.changed("PrometheusRule", RULE, without_release),
    ):
        yield


@fault("RULE_MISSING")
def the_rule_is_deleted(lab: Lab) -> Iterator[None]:
    with lab.without("PrometheusRule", RULE):
        yield


@fault("RULE_NOT_LOADED", symptoms=(29,))
def the_operator_is_gone_when_the_rule_comes(lab: Lab) -> Iterator[None]:
    again = another(rule := lab.get("PrometheusRule", RULE, MONITORING), RULE)
    again["metadata"]["labels"] = rule["metadata"]["labels"]
    with lab.without("PrometheusRule", RULE):
        wait_until(lambda: not lab.query("namespace_pod:gpu:avg"), "Prometheus unloads the rule", 180)
        with lab.changed("Deployment", f"{STACK}-operator", with_replicas(0)):
            wait_until(
                lambda: not lab.get("Deployment", f"{STACK}-operator", MONITORING)["status"].get("replicas"),
                "the operator is gone",
                60,
            )
            with lab.beside(again):
                yield


@fault("RULE_FAILS", 35, often=True)
def the_rule_matches_many_to_many(lab: Lab) -> Iterator[None]:
    many = with_expression(lambda _: f"{UTILISATION} * on (hostname) {UTILISATION}")
    with lab.changed("PrometheusRule", RULE, many):
        yield


@fault("RULE_TWICE", 49)
def two_rules_record_the_same(lab: Lab) -> Iterator[None]:
    rule = lab.get("PrometheusRule", RULE, MONITORING)
    twin = another(rule, "copied-from-a-blog")
    twin["metadata"]["labels"] = {"release": STACK}
    with lab.beside(twin):
        yield


@fault("RULE_GIVES_NOTHING", outlasts=True)
def the_rule_asks_for_a_job_that_is_not_there(lab: Lab) -> Iterator[None]:
    none = with_expression(lambda expression: f'({expression}) and on () up{{job="nvidia-dcgm-exporter"}}')
    with lab.changed("PrometheusRule", RULE, none):
        yield


@fault("RULE_GIVES_NAN", 50)
def the_rule_divides_by_zero(lab: Lab) -> Iterator[None]:
    with lab.changed("PrometheusRule", RULE, with_expression(lambda expression: f"0 * ({expression}) / 0")):
        yield


@fault("RULE_LABEL_RENAMED", 20)
def a_team_reads_a_label_that_was_renamed(lab: Lab) -> Iterator[None]:
    with lab.beside(recording(lab, "hostname:gpu:avg", f"avg by (Hostname) ({UTILISATION})")):
        yield


@fault("RULE_RATE_OF_GAUGE", 22)
def a_team_takes_a_gauge_for_a_counter(lab: Lab) -> Iterator[None]:
    with lab.beside(recording(lab, "pod:gpu:rate", f"sum by (pod) (rate({UTILISATION}[1m]))")):
        yield


@fault("RULE_WINDOW_TOO_SHORT", 38)
def a_window_holds_one_sample(lab: Lab) -> Iterator[None]:
    with lab.beside(recording(lab, "pod:gpu:max", f"max by (pod) (max_over_time({UTILISATION}[2s]))")):
        yield


@fault("RULE_POD_LABELS_MISSING", 34)
def a_team_joins_a_label_that_is_not_exported(lab: Lab) -> Iterator[None]:
    joined = f"{UTILISATION} * on (namespace, pod) group_left (label_team) kube_pod_labels"
    with lab.beside(recording(lab, "team:gpu:avg", f"avg by (label_team) ({joined})")):
        yield


@fault("RULE_WEBHOOK_UNSERVED", 30)
def the_webhook_of_the_operator_is_nobody(lab: Lab) -> Iterator[None]:
    rule = {
        "apiGroups": ["monitoring.coreos.com"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["prometheusrules"],
    }
    webhook = {
        "name": "prometheusrulemutate.monitoring.coreos.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "rules": [rule],
        "clientConfig": {"service": {"namespace": MONITORING, "name": "no-such-operator", "path": "/validate"}},
    }
    with lab.beside(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "left-by-an-earlier-release"},
            "webhooks": [webhook],
        }
    ):
        yield


# ---- metrics API


@fault("METRICS_API_MISSING", 41)
def the_api_is_not_registered(lab: Lab) -> Iterator[None]:
    with lab.without("APIService", API, None):
        yield


@fault("METRICS_API_UNAVAILABLE", 40, symptoms=(54,), often=True)
def the_adapter_is_gone(lab: Lab) -> Iterator[None]:
    with lab.changed("Deployment", ADAPTER, with_replicas(0)):
        yield


@fault("METRICS_API_UNAVAILABLE", 40, outlasts=True)
def the_api_points_at_a_service_that_is_not_there(lab: Lab) -> Iterator[None]:
    def elsewhere(service: Manifest) -> None:
        service["spec"]["service"]["name"] = "custom-metrics-apiserver"

    with lab.changed("APIService", API, elsewhere, None):
        yield


@fault("ADAPTER_WRONG_URL", 42)
def the_adapter_asks_a_service_that_is_not_there(lab: Lab) -> Iterator[None]:
    with lab.changed("Deployment", ADAPTER, with_option("prometheus-url", "http://prometheus.monitoring.svc:9090")):
        yield


@fault("ADAPTER_LISTS_NOTHING", 42, 45)
def no_rule_of_the_adapter_fits(lab: Lab) -> Iterator[None]:
    def other_series(config: Manifest) -> None:
        text = config["data"]["config.yaml"]
        config["data"]["config.yaml"] = text.replace("namespace_pod:", "pod:").replace("namespace_workload:", "app:")

    with reconfigured(lab, ADAPTER, other_series, "Deployment", ADAPTER):
        yield


@fault("ADAPTER_RULE_WRONG", 45)
def a_rule_of_the_adapter_asks_for_all_series(lab: Lab) -> Iterator[None]:
    def with_all(config: Manifest) -> None:
        everything = "  - seriesQuery: '{__name__=~\".*\"}'\n    metricsQuery: sum(<<.Series>>)\n"
        config["data"]["config.yaml"] = config["data"]["config.yaml"].rstrip() + "\n" + everything

    with reconfigured(lab, ADAPTER, with_all, "Deployment", ADAPTER):
        yield


@fault("ADAPTER_NOT_RESTARTED", 46)
def the_adapter_has_not_read_its_new_rules(lab: Lab) -> Iterator[None]:
    try:
        with lab.changed("ConfigMap", ADAPTER, with_rules_for("kube_pod_(info)", "kube_pod_info")):
            lab.restart("Deployment", ADAPTER)
            wait_until(lambda: lab.is_rolled_out("Deployment", ADAPTER), "the adapter has read the wrong rules", 120)
        yield
    finally:
        lab.restart("Deployment", ADAPTER)


@fault("ADAPTER_FORGETS", 44)
def the_adapter_looks_back_too_short(lab: Lab) -> Iterator[None]:
    with lab.changed("Deployment", ADAPTER, with_option("metrics-max-age", "500ms")):
        yield


@fault("ADAPTER_THROTTLED")
def the_adapter_may_ask_too_seldom(lab: Lab) -> Iterator[None]:
    with lab.changed("Deployment", ADAPTER, with_option("client-qps", "0.1")):
        yield


# ---- metric of each pod


@fault("METRIC_NOT_LISTED", 43)
def the_adapter_has_only_other_rules(lab: Lab) -> Iterator[None]:
    with reconfigured(lab, ADAPTER, with_rules_for("kube_pod_(info)", "kube_pod_info"), "Deployment", ADAPTER):
        yield


@fault("METRIC_WITHOUT_VALUE", 47, 48)
def the_adapter_loses_the_pod_in_its_aggregation(lab: Lab) -> Iterator[None]:
    def grouped(config: Manifest) -> None:
        config["data"]["config.yaml"] = config["data"]["config.yaml"].replace("by (<<.GroupBy>>)", "by (namespace)")

    with reconfigured(lab, ADAPTER, grouped, "Deployment", ADAPTER):
        yield


@fault("METRIC_DISAGREES", symptoms=(49,), outlasts=True)
def the_adapter_changes_the_value(lab: Lab) -> Iterator[None]:
    def shifted(config: Manifest) -> None:
        config["data"]["config.yaml"] = config["data"]["config.yaml"].replace(
            "{<<.LabelMatchers>>}", "{<<.LabelMatchers>>} + 50"
        )

    with reconfigured(lab, ADAPTER, shifted, "Deployment", ADAPTER):
        yield


# ---- HorizontalPodAutoscaler


@fault("HPA_FORBIDDEN", 53)
def the_controller_may_not_read_the_metric(lab: Lab) -> Iterator[None]:
    def without_custom_metrics(role: Manifest) -> None:
        role["rules"] = [rule for rule in role["rules"] if "custom.metrics.k8s.io" not in rule.get("apiGroups", ())]

    with (
        lab.without("ClusterRoleBinding", "prometheus-adapter-hpa-controller", None),
        lab.changed("ClusterRole", "system:controller:horizontal-pod-autoscaler", without_custom_metrics, None),
    ):
        yield


@fault("HPA_NOT_SEEN")
def the_controller_is_gone(lab: Lab) -> Iterator[None]:
    manifest = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
    aside = "/etc/kubernetes/kube-controller-manager.yaml"

    def is_gone() -> bool:
        return not lab.find("Pod", "kube-system", label_selector="component=kube-controller-manager")

    autoscaler = second_autoscaler(lab, "chat", "chat")
    with lab.beside(second_deployment(lab, "chat")):
        wait_until(lambda: lab.is_rolled_out("Deployment", "chat", WORKLOADS), "the second workload is ready", 60)
        lab.control_plane.check_output(f"mv {manifest} {aside}")
        try:
            wait_until(is_gone, "the controller manager is gone", 60)
            with lab.beside(autoscaler):
                yield
        finally:
            lab.control_plane.check_output(f"mv {aside} {manifest}")


@fault("HPA_SELECTOR_AMBIGUOUS", 61)
def two_autoscaled_workloads_share_their_labels(lab: Lab) -> Iterator[None]:
    twin = another(lab.get("Deployment", SAMPLE, WORKLOADS), "twin")
    with lab.beside(twin, second_autoscaler(lab, "twin", "twin")):
        yield


@fault("HPA_FASTER_THAN_METRIC", 58)
def the_rule_is_evaluated_every_half_minute(lab: Lab) -> Iterator[None]:
    def slow(rule: Manifest) -> None:
        rule["spec"]["groups"][0]["interval"] = "30s"

    with lab.changed("PrometheusRule", RULE, slow):
        yield


@fault("HPA_NOT_ACTIVE", 56, outlasts=True)
def an_autoscaler_reads_the_processor_and_nobody_measures_it(lab: Lab) -> Iterator[None]:
    autoscaler = second_autoscaler(lab, "chat", "chat")
    autoscaler["spec"]["metrics"] = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    ]
    with lab.beside(second_deployment(lab, "chat"), autoscaler):
        yield


@fault("HPA_RATIO_AS_PERCENT", 66)
def a_ratio_is_taken_for_percent(lab: Lab) -> Iterator[None]:
    ratio = 'avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""})'
    with lab.beside(
        second_deployment(lab, "chat"),
        recording(lab, "namespace_pod:gpu_ratio:avg", ratio),
        second_autoscaler(lab, "chat", "chat", metric="gpu_ratio"),
    ):
        yield


@fault("HPA_AT_MAXIMUM", 58)
def the_maximum_is_too_low_for_the_load(lab: Lab) -> Iterator[None]:
    def low(hpa: Manifest) -> None:
        hpa["spec"]["maxReplicas"] = 1

    with lab.changed(HPA, SAMPLE, low, WORKLOADS), lab.under_load(2):
        yield


# ---- workload


@fault("WORKLOAD_MISSING", often=True, outlasts=True)
def the_target_is_not_there(lab: Lab) -> Iterator[None]:
    with lab.beside(second_autoscaler(lab, "chat", "no-such-deployment")):
        yield


@fault("WORKLOAD_REPLICAS_OWNED", 63)
def a_pipeline_applies_replicas_after_the_hpa_has_scaled(lab: Lab) -> Iterator[None]:
    replicas = {"spec": {"replicas": 3}}
    with lab.changed(HPA, SAMPLE, with_at_least(2), WORKLOADS):
        wait_until(lambda: lab.get("Deployment", SAMPLE, WORKLOADS)["spec"]["replicas"] == 2, "the HPA scales", 60)
        wait_until(lambda: lab.is_rolled_out("Deployment", SAMPLE, WORKLOADS), "its pods are ready", 60)
        with (
            lab.applied("Deployment", SAMPLE, WORKLOADS, replicas, manager="a-pipeline"),
            lab.changed(HPA, SAMPLE, with_at_least(3), WORKLOADS),  # or the HPA would take them back
        ):
            yield


@fault("WORKLOAD_AT_ZERO", 62)
def the_target_is_scaled_to_zero(lab: Lab) -> Iterator[None]:
    with lab.scaled(SAMPLE, WORKLOADS, 0):
        yield


@fault("WORKLOAD_PAUSED")
def the_rollout_is_paused(lab: Lab) -> Iterator[None]:
    def paused(workload: Manifest) -> None:
        workload["spec"]["paused"] = True

    with lab.changed("Deployment", SAMPLE, paused, WORKLOADS):
        yield


@fault("WORKLOAD_TWO_AUTOSCALERS", 61, often=True)
def a_second_autoscaler_for_one_target(lab: Lab) -> Iterator[None]:
    with lab.beside(second_autoscaler(lab, "chat", SAMPLE)):
        yield


@fault("WORKLOAD_NO_READINESS_PROBE", 58)
def the_target_has_no_readiness_probe(lab: Lab) -> Iterator[None]:
    def unprobed(workload: Manifest) -> None:
        del container(workload)["readinessProbe"]

    with lab.changed("Deployment", SAMPLE, unprobed, WORKLOADS):
        yield


@fault("WORKLOAD_NOT_READY")
def the_target_is_never_ready(lab: Lab) -> Iterator[None]:
    def never(workload: Manifest) -> None:
        container(workload)["readinessProbe"]["httpGet"]["path"] = "/no-such-page"

    with lab.changed("Deployment", SAMPLE, never, WORKLOADS):
        yield


@fault("WORKLOAD_MAXIMUM_OVER_GPUS", 59)
def the_maximum_is_more_than_there_are_gpus(lab: Lab) -> Iterator[None]:
    def greedy(hpa: Manifest) -> None:
        hpa["spec"]["maxReplicas"] = 40

    with lab.changed(HPA, SAMPLE, greedy, WORKLOADS):
        yield


@fault("WORKLOAD_PODS_PENDING", 59)
def no_node_takes_the_pods(lab: Lab) -> Iterator[None]:
    def cordoned(node: Manifest) -> None:
        node["spec"]["unschedulable"] = True

    with lab.changed("Node", lab.gpu_node, cordoned, None), lab.changed(HPA, SAMPLE, with_at_least(2), WORKLOADS):
        yield


def quota_of_gpus(number: int) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": WORKLOADS},
        "spec": {"hard": {"requests.nvidia.com/gpu": str(number)}},
    }


@fault("WORKLOAD_MAXIMUM_OVER_QUOTA")
def a_quota_holds_fewer_pods_than_the_maximum(lab: Lab) -> Iterator[None]:
    with lab.beside(quota_of_gpus(4)):
        yield


@fault("WORKLOAD_PODS_NOT_CREATED")
def others_use_what_a_quota_has(lab: Lab) -> Iterator[None]:
    def is_used_up() -> bool:
        status = lab.get("ResourceQuota", "gpus", WORKLOADS).get("status") or {}
        return (status.get("used") or {}).get("requests.nvidia.com/gpu") == "8"

    with lab.beside(quota_of_gpus(8), second_deployment(lab, "batch", gpus={"nvidia.com/gpu": "7"})):
        wait_until(is_used_up, "the quota counts what there is", 60)
        with lab.changed(HPA, SAMPLE, with_at_least(2), WORKLOADS):
            yield


@fault("WORKLOAD_PODS_FAIL")
def an_update_of_the_workload_has_no_image(lab: Lab) -> Iterator[None]:
    def has_two_pods() -> bool:
        deployment = lab.get("Deployment", SAMPLE, WORKLOADS)
        return deployment["spec"]["replicas"] >= 2 and lab.is_rolled_out("Deployment", SAMPLE, WORKLOADS)

    with lab.changed(HPA, SAMPLE, with_at_least(2), WORKLOADS):
        wait_until(has_two_pods, "the workload has two pods, of which an update leaves one", 180)
        with lab.changed("Deployment", SAMPLE, with_image_missing, WORKLOADS):
            yield
