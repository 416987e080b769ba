# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the doctor can find: the chain's hops, and for each hop what breaks it, why, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The chain, left to right: id and title.
HOPS = {
    "node": "GPU nodes and drivers",
    "device_plugin": "Device plugin and allocatable GPUs",
    "node_labels": "Node labels",
    "exporter": "dcgm-exporter",
    "scrape": "Prometheus scrapes the exporter",
    "labels": "Series name the pods",
    "rule": "Recording rules",
    "metrics_api": "Metrics API",
    "metric": "Metric of each pod",
    "hpa": "HorizontalPodAutoscaler",
    "workload": "Workload",
}


@dataclass(frozen=True)
class Ailment:
    """One way in which the chain breaks.

    cause, fix: may hold {words} that a symptom gives.
    grace_s:    a condition younger than this passes by itself in a healthy cluster: during a start, a rolling update.
    is_silence: something is missing that an error further left, or before it in its own hop, explains.
    explained_by: only an error of one of these hops does.
    """

    id: str
    hop: str
    severity: Literal["error", "warning"]
    cause: str
    fix: str
    grace_s: int = 0
    is_silence: bool = False
    explained_by: tuple[str, ...] = tuple(HOPS)

    @property
    def doc(self) -> str:
        return f"docs/doctor/{self.hop}.md#{self.id.lower()}"


_DESCRIBE = "kubectl -n {namespace} describe pod {name}; kubectl -n {namespace} logs {name} --previous"
# A driver, an image pull and the first NVML call of a new node.
_NODE_GRACE_S = 300
# Readiness of the chart's exporter begins after 45 s.
_START_GRACE_S = 120
# Where pods run: whatever else is broken, they start.
_PLACES = ("node", "device_plugin")

_TABLE = (
    # node
    Ailment(
        "DRIVER_NEEDS_REBOOT",
        "node",
        "error",
        "the driver that is installed is not the one that is loaded, so NVML refuses to work",
        "run the nvidia_driver role with nvidia_driver_reboot_ok: true, or reboot the node",
    ),
    Ailment(
        "DRIVER_BROKEN",
        "node",
        "error",
        "the driver does not serve the node's GPUs",
        "do what the message says, then run the nvidia_driver role",
    ),
    Ailment(
        "NODE_NOT_READY",
        "node",
        "error",
        "the kubelet of a GPU node does not report, so what runs there is not seen",
        "kubectl describe node {name}; on the node: journalctl -u kubelet",
        grace_s=_START_GRACE_S,
    ),
    # device plugin
    Ailment(
        "DEVICE_PLUGIN_MISSING",
        "device_plugin",
        "error",
        "nothing tells the kubelet of the GPUs: there is no DaemonSet of NVIDIA's device plugin",
        "run the nvidia_device_plugin role",
        grace_s=_NODE_GRACE_S,
    ),
    Ailment(
        "DEVICE_PLUGIN_NO_NVML",
        "device_plugin",
        "error",
        "the container does not see the driver: containerd's default runtime is not nvidia and the pod names no "
        "RuntimeClass, or the node has no driver",
        "run the nvidia_driver and nvidia_container_toolkit roles, or set the plugin's runtimeClassName to nvidia",
        grace_s=_NODE_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "DEVICE_PLUGIN_NOT_READY",
        "device_plugin",
        "error",
        "the device plugin of the node does not run",
        _DESCRIBE,
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "DEVICE_PLUGIN_NOT_ON_NODE",
        "device_plugin",
        "error",
        "the device plugin may not run on the node: {why}",
        "run the gpu_node_labels role; for a taint add a toleration to the plugin's values",
        grace_s=_NODE_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "NODE_WITHOUT_GPUS",
        "device_plugin",
        "error",
        "the device plugin runs, but has no healthy GPU to offer: it sees none, or the kubelet was restarted under it",
        "kubectl -n {namespace} logs {name}; kubectl -n {namespace} delete pod {name}",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "GPU_UNHEALTHY",
        "device_plugin",
        "warning",
        "the device plugin has taken GPUs out of use, after an Xid error for instance",
        "on the node: dmesg | grep -i xid; then reset the GPU or reboot the node",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    # node labels
    Ailment(
        "NODE_LABEL_MISSING",
        "node_labels",
        "error",
        "{component} selects nodes by labels that this one lacks; on nodes that an autoscaler adds they have to be in "
        "the template of the node group",
        "run the gpu_node_labels role, or label the node: {labels}",
        grace_s=_NODE_GRACE_S,
    ),
    # exporter
    Ailment(
        "EXPORTER_MISSING",
        "exporter",
        "error",
        "there is no dcgm-exporter, and Prometheus has no series of GPUs",
        "run the dcgm_exporter role",
        grace_s=_NODE_GRACE_S,
    ),
    Ailment(
        "EXPORTER_NOT_ON_NODE",
        "exporter",
        "error",
        "dcgm-exporter has no pod on a GPU node: {why}",
        "add a toleration to the exporter's values (dcgm_exporter_values: {{tolerations: [...]}})",
        grace_s=_NODE_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "EXPORTER_NO_NVML",
        "exporter",
        "error",
        "the container does not see the driver: containerd's default runtime is not nvidia and the pod names no "
        "RuntimeClass",
        "run the nvidia_container_toolkit role; set dcgm_exporter_runtime_class to nvidia",
        grace_s=_NODE_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "EXPORTER_MOUNT_FAILS",
        "exporter",
        "error",
        "the exporter waits for a volume that its node does not have; /home/kubernetes/bin/nvidia for instance is only "
        "there on GKE",
        "take the volume out of the exporter's values, or make it: kubectl -n {namespace} describe pod {name}",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "EXPORTER_NOT_READY",
        "exporter",
        "error",
        "the exporter of the node does not run",
        _DESCRIBE,
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "EXPORTER_SERVES_NOTHING",
        "exporter",
        "error",
        "the exporter answers, but sees no GPU any more: the driver was reloaded under it, or a systemctl "
        "daemon-reload has taken the devices from its container",
        "kubectl -n {namespace} delete pod {name}; if it comes back, use CDI (nvidia_container_toolkit role), which "
        "keeps the devices",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "EXPORTER_OUT_OF_MEMORY",
        "exporter",
        "warning",
        "DCGM's memory grows with the GPUs of a node and their fields; the chart's limit of 512 Mi is too little for 8",
        "dcgm_exporter_values: {{resources: {{limits: {{memory: 1Gi}}}}}}",
    ),
    Ailment(
        "EXPORTER_PROBES_KILL",
        "exporter",
        "error",
        "the kubelet ends the exporter before it can answer: {why}",
        "dcgm_exporter_values: {{livenessProbe: {{initialDelaySeconds: 45}}}}, and a collect interval well below that",
    ),
    Ailment(
        "EXPORTER_NAMES_NO_PODS",
        "exporter",
        "error",
        "the exporter is not told to ask the kubelet which pod holds a GPU",
        "set DCGM_EXPORTER_KUBERNETES to true, as the dcgm_exporter role and NVIDIA's chart do",
    ),
    Ailment(
        "EXPORTER_NO_POD_RESOURCES",
        "exporter",
        "error",
        "the kubelet's pod-resources folder is not mounted, so the exporter cannot ask which pod holds a GPU",
        "mount /var/lib/kubelet/pod-resources, or the folder of a kubelet with another root (chart: kubeletPath)",
    ),
    Ailment(
        "EXPORTER_DEVICE_IDS",
        "exporter",
        "error",
        "GKE's device plugin calls GPUs nvidia0, the exporter looks for UUIDs",
        "set DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE to device-name",
    ),
    Ailment(
        "EXPORTER_RESOURCE_NAMES",
        "exporter",
        "error",
        "the exporter knows nvidia.com/gpu and nvidia.com/mig-* only, so it does not name pods with another resource",
        "dcgm_exporter_values: {{extraEnv: [{{name: NVIDIA_RESOURCE_NAMES, value: '{resources}'}}]}}",
    ),
    Ailment(
        "EXPORTER_SHARED_GPUS",
        "exporter",
        "warning",
        "of the pods that share a GPU the exporter names one only",
        "set KUBERNETES_VIRTUAL_GPUS to true, with hostPID and kubernetes.enablePodUID, and use the metric shared; or "
        "scale on a metric of the application",
    ),
    Ailment(
        "EXPORTER_SHARED_GPUS_BLIND",
        "exporter",
        "warning",
        "without the host's process ids the exporter cannot tell which pod uses how much: each reads 0",
        "dcgm_exporter_values: {{hostPID: true, kubernetes: {{enablePodUID: true}}}}",
    ),
    Ailment(
        "EXPORTER_COLLECTS_SLOWLY",
        "exporter",
        "warning",
        "the exporter reads the GPUs less often than Prometheus asks it: values repeat and react late",
        "set dcgm_exporter_collect_interval to the scrape interval or less (DCGM_EXPORTER_INTERVAL, milliseconds)",
    ),
    Ailment(
        "PROFILING_MISSING",
        "exporter",
        "error",
        "a metric needs DCGM's profiling fields, which are not there: {why}",
        "grant SYS_ADMIN to the exporter; where GPUs have no profiling use the metric gpu_util",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "EXPORTER_FIELD_MISSING",
        "exporter",
        "error",
        "the exporter reports GPUs, but not {fields}: its list of counters lacks the field, or after an upgrade this "
        "exporter or driver does not give it any more",
        "add the field to the exporter's counters (CSV), go back to the version that had it, or use another metric",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "PROFILING_FROZEN",
        "exporter",
        "error",
        "another profiler (nsys, ncu, a second DCGM) holds the GPU's counters, or an Xid error has stopped sampling",
        "end the other profiler; dcgmi profile --resume; restart the exporter on the node",
    ),
    Ailment(
        "METRIC_BLANK_ON_MIG",
        "exporter",
        "error",
        "the driver reports no GPU_UTIL for MIG instances",
        "use the metric gpu or mig, which read GR_ENGINE_ACTIVE",
    ),
    Ailment(
        "EXPORTER_LOSES_A_GPU",
        "exporter",
        "error",
        "DCGM cannot read a field of the GPU and writes a huge number instead; a rule of this collection leaves it "
        "out, one without bounds scales to the maximum on it",
        "on the node: dmesg | grep -i xid; restart the exporter there, then reset the GPU or reboot the node",
    ),
    Ailment(
        "EXPORTER_IMPOSSIBLE_VALUES",
        "exporter",
        "warning",
        "DCGM writes a huge number for a field that it cannot read; no autoscaled pod holds the GPU, but a rule "
        "without bounds may count it",
        "restart the exporter on the node; profiles of this collection leave such values out",
    ),
    Ailment(
        "EXPORTER_TWICE",
        "exporter",
        "warning",
        "two exporters, or two jobs, report the same GPU: a sum counts it twice",
        "keep one of them; the gpu-operator's is switched off by dcgmExporter.enabled: false",
        grace_s=_NODE_GRACE_S,
    ),
    # scrape
    Ailment(
        "PROMETHEUS_UNREACHABLE",
        "scrape",
        "error",
        "Prometheus does not answer through the API server",
        "run the prometheus_stack role, or set prometheus.namespace, prometheus.service and prometheus.port",
        grace_s=_NODE_GRACE_S,
        explained_by=("node",),
    ),
    Ailment(
        "MONITOR_NOT_SELECTED",
        "scrape",
        "error",
        "no Prometheus object selects the exporter's monitor: {why}",
        "set dcgm_exporter_prometheus_release to the release of the stack, or label the monitor: {labels}",
        is_silence=True,
    ),
    Ailment(
        "MONITOR_FITS_NO_SERVICE",
        "scrape",
        "error",
        "the exporter's monitor finds nothing to scrape: {why}",
        "correct its selector, namespaceSelector or port; the dcgm_exporter role keeps them alike",
        is_silence=True,
    ),
    Ailment(
        "MONITOR_MISSING",
        "scrape",
        "error",
        "no ServiceMonitor or PodMonitor points at the exporter, and nothing else scrapes it",
        "run the dcgm_exporter role, or set serviceMonitor.enabled in the chart's values",
        is_silence=True,
    ),
    Ailment(
        "MONITOR_INTERVAL_IGNORED",
        "scrape",
        "warning",
        "port and interval stand in two endpoints (`- port` and `- interval`), so the interval belongs to no port",
        "put interval under the same list item as port",
    ),
    Ailment(
        "TARGET_DOWN",
        "scrape",
        "error",
        "Prometheus knows the exporter, but cannot read it: a network policy, TLS, an exporter that hangs, "
        "or one before 4.5.3 whose kubelet does not answer",
        "see lastError under Status > Targets in Prometheus; kubectl -n {namespace} logs {name}",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "TARGET_MISSING",
        "scrape",
        "error",
        "Prometheus has no target for an exporter that is ready",
        "see Status > Service discovery in Prometheus; compare the monitor's selector, port and namespaces",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    # labels
    Ailment(
        "POD_WITHOUT_GPU_LIMIT",
        "labels",
        "error",
        "the kubelet knows of no GPU in the pods, so the exporter names none: they take GPUs around it, by "
        "NVIDIA_VISIBLE_DEVICES or as privileged pods",
        "give a container of the pod template resources.limits nvidia.com/gpu",
    ),
    Ailment(
        "EXPORTER_NO_POD_LABELS",
        "labels",
        "error",
        "the series of GPUs name no pod at all, though pods hold GPUs",
        "see the log of dcgm-exporter for pod-resources; see that no relabeling drops the labels pod and exported_pod",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "SERIES_WITHOUT_NAMESPACE",
        "labels",
        "error",
        "the series name pods, but not their namespace: a relabeling has dropped it",
        "take the rule for namespace or exported_namespace out of the monitor's metricRelabelings",
    ),
    Ailment(
        "POD_WITHOUT_SERIES",
        "labels",
        "error",
        "the exporter serves GPUs, but no series names these pods",
        "see that dcgm-exporter runs on their nodes and that the device plugin of these GPUs is NVIDIA's; a model "
        "server's pods need a PodMonitor",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    # rule
    Ailment(
        "RULE_NOT_SELECTED",
        "rule",
        "error",
        "no Prometheus object selects the PrometheusRule: {why}",
        "set prometheus.rule_labels and prometheus.rule_namespace as ruleSelector and ruleNamespaceSelector ask for",
    ),
    Ailment(
        "RULE_NOT_LOADED",
        "rule",
        "error",
        "the PrometheusRule is there, but Prometheus has not loaded it: the operator does not run, or a broken rule "
        "blocks the reload",
        "kubectl get prometheusrules -A; see the logs of the operator and of Prometheus' config-reloader",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "RULE_MISSING",
        "rule",
        "error",
        "nothing records the series that the metric is made of",
        "run gpu_autoscaler for the autoscaler: it makes the PrometheusRule",
        is_silence=True,
    ),
    Ailment(
        "RULE_FAILS",
        "rule",
        "error",
        "Prometheus cannot evaluate the rule",
        "try the query in Prometheus; look for other rules that record the same series",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "RULE_NOT_EVALUATED",
        "rule",
        "error",
        "the rule is loaded, but its group has not been evaluated for long: Prometheus is overloaded or hangs",
        "see prometheus_rule_group_iterations_missed_total; give Prometheus more CPU",
    ),
    Ailment(
        "RULE_TOO_SLOW",
        "rule",
        "warning",
        "an evaluation takes longer than the interval, so some are left out",
        "raise prometheus.evaluation_interval, or give Prometheus more CPU",
    ),
    Ailment(
        "RULE_TWICE",
        "rule",
        "warning",
        "several rules record the same series: of two values for one pod the last one counts, or the rule fails",
        "keep one of them: kubectl get prometheusrules -A -o yaml | grep -n {series}",
    ),
    Ailment(
        "RULE_GIVES_NAN",
        "rule",
        "error",
        "the rule divides by zero; the adapter makes 0 of NaN unless its own rule leaves that out, and the HPA scales "
        "down to the minimum",
        "guard the denominator: `x / (y > 0)`",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "RULE_GIVES_NOTHING",
        "rule",
        "error",
        "the exporter's series name the pods, but the rule gives no value: all are outside of 0..100, or it asks for "
        "other labels",
        "try the rule's query in Prometheus",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "RULE_LABEL_RENAMED",
        "rule",
        "warning",
        "dcgm-exporter calls the node's label Hostname or hostname by its version, and the rule asks for the other one",
        "write {label} in the rule; better, have the target's relabeling add a label node and use that",
    ),
    Ailment(
        "RULE_JOINS_WRONG_POD",
        "rule",
        "warning",
        "the rule joins on the label pod, which on kube-state-metrics' series names kube-state-metrics itself: nothing "
        "matches",
        "set honorLabels: true in the monitor of kube-state-metrics, as kube-prometheus-stack does",
    ),
    Ailment(
        "RULE_POD_LABELS_MISSING",
        "rule",
        "warning",
        "the rule joins a label of pods that kube-state-metrics is not told to export, so it gives nothing",
        "kube-state-metrics' values: metricLabelsAllowlist: ['pods=[{label}]'], plural and with brackets; or join "
        "kube_pod_owner",
    ),
    Ailment(
        "RULE_RATE_OF_GAUGE",
        "rule",
        "warning",
        "{field} goes up and down, and {function}() takes each fall for a restart of a counter: its value says nothing",
        "use avg_over_time(), or the field itself; what DCGM calls bytes is bytes per second already",
    ),
    Ailment(
        "RULE_WINDOW_TOO_SHORT",
        "rule",
        "warning",
        "the rule's window is shorter than two scrapes: it has no value whenever a scrape comes late",
        "make the window {least} or longer, four scrapes, or scrape more often",
    ),
    Ailment(
        "RULE_WEBHOOK_UNSERVED",
        "rule",
        "warning",
        "the API server asks a webhook before it takes a PrometheusRule, and nothing answers there: no rule can be "
        "made or changed",
        "see that the Prometheus operator runs; what is left of one that is gone goes with kubectl delete "
        "validatingwebhookconfiguration {name}, and mutatingwebhookconfiguration",
        grace_s=_START_GRACE_S,
        is_silence=True,
        explained_by=("node",),
    ),
    # metrics API
    Ailment(
        "METRICS_API_MISSING",
        "metrics_api",
        "error",
        "nobody serves {group}",
        "run the prometheus_adapter role, for external metrics with prometheus_adapter_external_metrics: true",
    ),
    Ailment(
        "METRICS_API_UNAVAILABLE",
        "metrics_api",
        "error",
        "the control plane does not reach the server of {group}: its pods are not ready, or a firewall is between",
        "kubectl describe apiservice v1beta1.{group}; see the pods of {owner}; open its port to the control plane",
        grace_s=_START_GRACE_S,
        explained_by=("node",),
    ),
    Ailment(
        "METRICS_API_OF_ANOTHER",
        "metrics_api",
        "error",
        "{group} belongs to {owner}, which does not know recorded series; a cluster has one server of that API",
        "remove that server and run the prometheus_adapter role, or scale on a metric that it serves",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "ADAPTER_RULE_WRONG",
        "metrics_api",
        "error",
        "one wrong rule holds back all metrics: the adapter does not start with it, or Prometheus refuses its series "
        "query",
        "correct the rule in the adapter's values or ConfigMap and restart the adapter; its log has the rest of it",
    ),
    Ailment(
        "ADAPTER_NOT_RESTARTED",
        "metrics_api",
        "error",
        "the adapter reads its rules only when it starts, and they have changed since",
        "kubectl -n {namespace} rollout restart deployment {name}; the chart's checksum/config annotation does it by "
        "itself",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "ADAPTER_WRONG_URL",
        "metrics_api",
        "error",
        "prometheus-adapter asks a Prometheus that is not there: {why}",
        "set prometheus_adapter_prometheus_url and prometheus_adapter_prometheus_port",
    ),
    Ailment(
        "ADAPTER_LISTS_NOTHING",
        "metrics_api",
        "error",
        "the adapter runs, but lists no metric at all: its Prometheus has none of the series, or one of its rules is "
        "wrong and holds all back",
        "see its log for `unable to update list of all metrics`; see --prometheus-url of its Deployment",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "ADAPTER_FORGETS",
        "metrics_api",
        "warning",
        "the adapter looks back less far than two periods of what it looks for: metrics come and go",
        "set --metrics-max-age to twice the slowest interval (prometheus_adapter_relist_interval sets both)",
    ),
    Ailment(
        "ADAPTER_OVERLOADED",
        "metrics_api",
        "warning",
        "the adapter runs out of memory: its rules, the chart's default ones for instance, list nearly all series of "
        "the cluster again and again",
        "set rules.default: false in the chart's values, as the prometheus_adapter role does; else raise its memory",
    ),
    # metric
    Ailment(
        "METRIC_NOT_LISTED",
        "metric",
        "error",
        "the API does not offer the metric: no rule of the adapter makes it of a series, or the series has no samples",
        "run the prometheus_adapter role: its one rule makes a metric of each recorded series",
        is_silence=True,
    ),
    Ailment(
        "METRIC_WITHOUT_VALUE",
        "metric",
        "error",
        "the API offers the metric, but gives no value for these pods: its rule loses the labels namespace and pod, or "
        "takes them from the exporter's own pod",
        "see the log of {owner}; its query has to keep namespace and pod (by (<<.GroupBy>>))",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "METRIC_DISAGREES",
        "metric",
        "warning",
        "the API gives another value than Prometheus has recorded: it asks another Prometheus, or a second rule makes "
        "the metric",
        "see --prometheus-url of the adapter, and its rules for a second one of that name",
        grace_s=_START_GRACE_S,
    ),
    # hpa
    Ailment(
        "HPA_NOT_SEEN",
        "hpa",
        "error",
        "the HPA has no condition: its controller does not run",
        "kubectl -n kube-system get pods -l component=kube-controller-manager",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "HPA_CANNOT_SCALE",
        "hpa",
        "error",
        "the controller cannot read or set the replicas of the target",
        "correct scaleTargetRef, or install what brings that kind with its scale subresource",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "HPA_SELECTOR_AMBIGUOUS",
        "hpa",
        "error",
        "the pods belong to several autoscalers, so none of them acts",
        "give each workload's pods a label of their own, and have one autoscaler for each",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "HPA_FORBIDDEN",
        "hpa",
        "error",
        "the HPA controller may not read the metrics API",
        "grant its service account get on {group}; prometheus-adapter's chart does with rbac.create: true",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "HPA_NOT_ACTIVE",
        "hpa",
        "error",
        "the controller cannot work out a number of replicas, so it leaves them as they are",
        "kubectl -n {namespace} describe hpa {name}",
        grace_s=_START_GRACE_S,
        is_silence=True,
    ),
    Ailment(
        "HPA_AT_MAXIMUM",
        "hpa",
        "warning",
        "the HPA has wanted more replicas than it may have for long",
        "raise max_replicas if there are GPUs for them; see whether the target value can be reached at all",
        grace_s=1800,
    ),
    Ailment(
        "HPA_FASTER_THAN_METRIC",
        "hpa",
        "warning",
        "the HPA looks several times at a value that has not changed yet, and adds pods each time: it overshoots",
        "lower the interval that is longest: dcgm_exporter_collect_interval, dcgm_exporter_scrape_interval or "
        "prometheus.evaluation_interval; or use a Pods metric",
    ),
    Ailment(
        "HPA_RATIO_AS_PERCENT",
        "hpa",
        "error",
        "DCGM's profiling fields are 0 to 1, the target is meant in percent, so it is never reached: the HPA only "
        "scales down",
        "multiply by 100 in the rule that makes the metric, or give the target as a ratio",
    ),
    Ailment(
        "HPA_MANIFEST_OUTDATED",
        "hpa",
        "warning",
        "the manifest that the HPA comes from has apiVersion {version}, which Kubernetes {gone} and later refuse: it "
        "cannot be applied again",
        "write apiVersion: autoscaling/v2 in the manifest, with target.type under each metric; kubectl convert does it",
    ),
    Ailment(
        "HPA_METRIC_STANDS_STILL",
        "hpa",
        "warning",
        "model servers take all GPU memory and keep the GPU busy whatever the load, so the value says little",
        "use the metric llm: waiting requests and use of the KV cache",
    ),
    # workload
    Ailment(
        "WORKLOAD_MISSING",
        "workload",
        "error",
        "what the HPA is to scale is not there",
        "create it, or correct scaleTargetRef",
        grace_s=_START_GRACE_S,
    ),
    Ailment(
        "WORKLOAD_AT_ZERO",
        "workload",
        "warning",
        "an HPA leaves a workload with 0 replicas alone",
        "kubectl -n {namespace} scale {target} --replicas=1; to scale from zero use KEDA",
    ),
    Ailment(
        "WORKLOAD_TWO_AUTOSCALERS",
        "workload",
        "error",
        "two autoscalers act on one workload: Kubernetes holds both back, or they undo each other's work",
        "keep one of them; put further metrics into its extra_metrics",
    ),
    Ailment(
        "WORKLOAD_REPLICAS_OWNED",
        "workload",
        "warning",
        "a manifest with replicas is applied by {manager}: each time it undoes what the HPA has done",
        "leave spec.replicas out of the manifest, chart or role; Argo CD: ignoreDifferences for /spec/replicas",
    ),
    Ailment(
        "WORKLOAD_PODS_PENDING",
        "workload",
        "error",
        "pods find no node",
        "add nodes, or set max_replicas to what the GPUs hold; kubectl -n {namespace} describe pods",
        grace_s=600,
        is_silence=True,
        explained_by=_PLACES,
    ),
    Ailment(
        "WORKLOAD_NOT_READY",
        "workload",
        "error",
        "no pod of the workload is ready, so there is nothing to scale on",
        "kubectl -n {namespace} describe pods; kubectl -n {namespace} logs {target}",
        grace_s=600,
        is_silence=True,
        explained_by=_PLACES,
    ),
    Ailment(
        "WORKLOAD_NO_READINESS_PROBE",
        "workload",
        "warning",
        "pods count as ready while they still load their model, so the HPA adds more",
        "add a readinessProbe to the pod template that answers once requests are served",
    ),
    Ailment(
        "WORKLOAD_MAXIMUM_OVER_GPUS",
        "workload",
        "warning",
        "the nodes' GPUs do not hold as many pods as the HPA may ask for",
        "set max_replicas to what fits, or let a cluster autoscaler add nodes",
        is_silence=True,
        explained_by=("node", "node_labels"),
    ),
)

CATALOGUE = {ailment.id: ailment for ailment in _TABLE}
