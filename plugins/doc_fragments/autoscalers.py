# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  autoscalers:
    description:
      - The autoscalers, each for one workload.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the HorizontalPodAutoscaler.
          - The target's name if not given.
        type: str
      namespace:
        description:
          - Namespace of the target and of the HorizontalPodAutoscaler.
        type: str
        default: default
      target:
        description:
          - The object to scale, anything with a scale subresource.
          - Needed for O(state=present).
        type: dict
        suboptions:
          kind:
            description:
              - Its kind.
            type: str
            default: Deployment
          name:
            description:
              - Its name.
            type: str
            required: true
          api_version:
            description:
              - Where the kind is served.
              - Known for V(Deployment), V(StatefulSet), V(ReplicaSet), V(Rollout) and V(LeaderWorkerSet).
            type: str
      metric:
        description:
          - A profile by its name, or a dictionary with C(name) and C(query).
          - Profile V(gpu) is the share of time in which the GPU's engine was active, DCGM_FI_PROF_GR_ENGINE_ACTIVE, and
            for pods on GPUs that do not report it DCGM_FI_DEV_GPU_UTIL.
          - Profile V(gpu_util) is DCGM_FI_DEV_GPU_UTIL.
          - Both are percent of a GPU, averaged over the GPUs of a pod.
          - C(query) is PromQL that gives one series per C(namespace) and C(pod), recorded under C(name), in lower case.
        type: raw
        default: gpu
      target_value:
        description:
          - Average over the pods to aim at. Percent, 60 if not given, for profiles; the query's unit otherwise.
        type: float
      min_replicas:
        description:
          - Fewest replicas.
        type: int
        default: 1
      max_replicas:
        description:
          - Most replicas. A warning is given if the cluster's GPUs do not suffice for them.
          - Needed for O(state=present).
        type: int
      scale_up:
        description:
          - How fast replicas are added. What is given replaces the default, which is no window, and the larger of
            2 pods and 50 percent in 60 seconds.
        type: dict
        suboptions: &scaling_rules
          stabilization_window_seconds:
            description:
              - Seconds, 0 to 3600, whose most cautious recommendation counts.
            type: int
          select_policy:
            description:
              - Which policy decides, the one that allows most, the one that allows least, or none at all.
            type: str
            choices: [Max, Min, Disabled]
          tolerance:
            description:
              - Half-width of the band around the target in which nothing is done, 0.05 being 5 percent.
              - The cluster's default is 0.1. Needs Kubernetes with the feature HPAConfigurableTolerance.
            type: float
          policies:
            description:
              - What may change in a period.
            type: list
            elements: dict
            suboptions:
              type:
                description:
                  - What O(autoscalers[].scale_up.policies[].value) counts.
                type: str
                choices: [Pods, Percent]
                required: true
              value:
                description:
                  - Most pods, or percent of the pods.
                type: int
                required: true
              period_seconds:
                description:
                  - Seconds, 1 to 1800.
                type: int
                required: true
      scale_down:
        description:
          - How fast replicas are removed. What is given replaces the default, which is a window of 300 seconds, and the
            smaller of 1 pod and 25 percent in 60 seconds.
        type: dict
        suboptions: *scaling_rules
      extra_metrics:
        description:
          - More entries for C(spec.metrics) of the autoscaling/v2 HorizontalPodAutoscaler.
          - The metric that asks for most replicas wins.
        type: list
        elements: dict
        default: []
"""
