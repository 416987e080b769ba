#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler_watch
short_description: Watch an autoscaler while its load changes
version_added: 0.1.0
description:
  - Reads a HorizontalPodAutoscaler and its target twice per second. Returns the replicas over time, and the events of
    the HPA, the scheduler and the pods in order.
  - It works for any HPA with any metrics.
  - Changes nothing. The role P(kubegpu.autoscale.gpu_loadtest#role) sends a load and evaluates the result.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.reads
options:
  namespace:
    description: Namespace of the HPA.
    type: str
    required: true
  name:
    description: Name of the HPA.
    type: str
    required: true
  seconds:
    description: How long to watch, in seconds.
    type: float
    default: 60
  end:
    description: Time at which to stop, in Unix seconds. It overrides O(seconds).
    type: float
  job:
    description: A Job in the same namespace that sends the load. The time begins when the load begins.
    type: dict
    suboptions:
      name:
        description: Name of the Job.
        type: str
        required: true
      line:
        description:
          - Text in the pod's log that marks the start of the load. By default the time begins when the pod runs.
          - If the last line of the log begins with the seconds since then, as in C(12.0 s), that time counts as passed.
        type: str
        default: ""
      timeout:
        description: Seconds to wait for the start of the load, including the time to pull the image.
        type: float
        default: 120
      until_end:
        description: Stop once the Job's container has ended, at the latest after O(seconds).
        type: bool
        default: false
  pod:
    description:
      - Name of a pod of the target. Its values of the HPA's metrics of type Pods are recorded as well, from
        C(custom.metrics.k8s.io).
    type: str
    default: ""
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler_info
  - module: kubegpu.autoscale.gpu_doctor
"""

EXAMPLES = r"""
- name: Watch an autoscaler for five minutes
  kubegpu.autoscale.gpu_autoscaler_watch:
    namespace: ml
    name: inference
    seconds: 300
  register: watched

- name: Show the events in order
  ansible.builtin.debug:
    msg: "{{ watched.result.events | map(attribute='message') }}"
"""

RETURN = r"""
result:
  description: The recorded samples, events and pods.
  returned: success
  type: dict
  contains:
    began_s: {description: Start time in Unix seconds., type: float}
    ended_s: {description: Time of the last sample in Unix seconds., type: float}
    target: {description: Kind and name of the HPA's target., type: dict}
    min_replicas: {description: Minimum number of replicas., type: int}
    max_replicas: {description: Maximum number of replicas., type: int}
    behavior: {description: Scaling rules of the HPA. Empty if it has the defaults of Kubernetes., type: dict}
    scale_down_window_s: {description: "Stabilization window for scaling down, in seconds.", type: int}
    samples:
      description:
        - Samples in order, including the last one before each change.
        - Each has C(time_s), the replicas C(desired), C(current) and C(ready), and C(ratio). That is the value divided
          by the target, of the metric with the highest ratio.
      type: list
      elements: dict
    events:
      description: Events of the HPA, its target and the pods. Each has C(time), C(object), C(reason) and C(message).
      type: list
      elements: dict
    pods:
      description: Pods that were created during that time, with the seconds until each was scheduled and ready.
      type: list
      elements: dict
    ends:
      description:
        - Pods of the target that ended, each with C(uid), C(name), C(began_s), C(seen_s) and C(ended_s).
        - C(began_s) is the time in Unix seconds at which it was first seen terminating, and C(seen_s) the time at which
          it was last seen. C(ended_s) is the time at which it was gone, and V(null) if it was not.
      type: list
      elements: dict
    ready_pods:
      description: Ready pods of the target at the end, each with C(name), C(uid), C(address) and C(ports).
      type: list
      elements: dict
    targets: {description: Target value of each metric of type Pods., type: dict}
    pod_samples:
      description: Values of O(pod) over time. Each has C(time_s), and C(pod_values) by metric.
      type: list
      elements: dict
  sample:
    began_s: 1795000000.0
    ended_s: 1795000300.1
    target: {kind: Deployment, name: inference}
    min_replicas: 1
    max_replicas: 8
    behavior: {scaleDown: {stabilizationWindowSeconds: 300, policies: [{type: Pods, value: 1, periodSeconds: 60}]}}
    scale_down_window_s: 300
    samples:
      - {time_s: 1795000004.2, desired: 3, current: 1, ready: 1, ratio: 1.6}
    events:
      - time: "2026-11-18T11:06:44+00:00"
        object: HorizontalPodAutoscaler inference
        reason: SuccessfulRescale
        message: "New size: 3; reason: pods metric gpu above target"
    pods:
      - {name: inference-5d6c9f-x2x9k, made: "2026-11-18T11:06:44+00:00", scheduled_s: 0, ready_s: 9}
    ends: []
    ready_pods:
      - {name: inference-5d6c9f-x2x9k, uid: 0b6f0c1e-6d5a-4b0e-9f55-1f7b9a3f5a11, address: 10.244.1.7, ports: [8000]}
    targets: {gpu: 60.0}
    pod_samples: []
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
hop: {description: The first broken hop., returned: failure, type: str}
fix: {description: How to fix it., returned: failure, type: str}
"""

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.watch_autoscaler import Watch, watch_autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import WATCH
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule


def main() -> None:
    module = GpuModule(argument_spec=WATCH)
    params = module.params
    job = params["job"] or {}
    with module.boundary():
        module.outcome = watch_autoscaler(
            module.kube_client(),
            Watch(
                params["namespace"],
                params["name"],
                seconds=params["seconds"],
                end_s=params["end"],
                job=job.get("name", ""),
                line=job.get("line", ""),
                job_timeout_s=job.get("timeout", 0),
                until_job_ends=job.get("until_end", False),
                pod=params["pod"],
            ),
        )


if __name__ == "__main__":
    main()
