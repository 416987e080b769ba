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
          - V(gpu) is the share of time in which the GPU's engine was active, DCGM_FI_PROF_GR_ENGINE_ACTIVE. Where GPUs
            do not report it, DCGM_FI_DEV_GPU_UTIL stands in. V(gpu_util) is the latter alone.
          - V(gpu_compute) is the larger of DCGM_FI_PROF_SM_ACTIVE and DCGM_FI_PROF_DRAM_ACTIVE of each GPU.
          - V(gpu_memory) is the share of a GPU's memory that is in use.
          - V(mig) is the engine activity of MIG instances. V(shared) is for GPUs that several pods share.
          - These are percent of a GPU, averaged over the GPUs of a pod.
          - V(llm) is two metrics of a model server, C(llm_requests_waiting) and C(llm_kv_cache).
          - V(llm_in_flight) is the requests that vLLM, SGLang, TGI or Triton has, running and waiting. It needs
            O(autoscalers[].target_value).
          - C(query) is PromQL that gives one series per C(namespace) and C(pod), recorded under C(name), in lower case.
            With C(per=workload) it gives the workload's total instead, requests per second at its ingress for instance.
          - With O(autoscalers[].metric_type=External) C(query) may be left out; C(selector) then holds the labels of a
            metric that somebody else serves.
        type: raw
        default: gpu
      metric_type:
        description:
          - Where the HorizontalPodAutoscaler reads the metric.
          - V(Pods) reads a value for each pod. Pods that are pending or do not report yet damp the average, so it does
            not overshoot. The default, except for a metric with C(per=workload).
          - V(Object) reads one value of the target, which a rule of its own records. The average over the pods is
            compared with the target value; a total is divided by the replicas first.
          - V(External) reads C(external.metrics.k8s.io), a total that is divided by the replicas.
          - V(Object) and V(External) need a Deployment, a StatefulSet or a Rollout, unless the metric has no query.
        type: str
        choices: [Pods, Object, External]
      target_value:
        description:
          - Average over the pods to aim at, in percent or in the query's unit.
          - By default the value of the profile, which is 60 percent for most profiles. V(llm_in_flight) has none.
        type: float
      target_values:
        description:
          - The same for each metric of a profile that has several, by name, for V(llm) for instance
            C(llm_requests_waiting) and C(llm_kv_cache).
        type: dict
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
      dead_time_seconds:
        description:
          - Seconds from a scaling decision until the metric shows its effect, 1 to 1800.
          - A new pod has to be scheduled and ready by then, and its first value recorded.
          - The default scaling rules follow from it.
          - If not given it is measured on the target's pods. A measured value above 300 is warned of in each run.
        type: int
      scale_up:
        description:
          - How fast replicas are added. An option replaces its default. By default there is no window, and one step
            adds the larger of 2 pods and 50 percent. A step takes as long as a new pod needs to be ready and seen in
            the metric.
          - That time is measured on the target's pods as soon as there are any, and kept in an annotation. Until then
            it is taken to be 60 seconds. The result explains it.
        type: dict
        suboptions: &scaling_rules
          stabilization_window_seconds:
            description:
              - Seconds, 0 to 3600, whose most cautious recommendation counts.
            type: int
          select_policy:
            description:
              - The policy that decides. V(Max) takes the one that allows most, V(Min) the one that allows least, and
                V(Disabled) stops.
            type: str
            choices: [Max, Min, Disabled]
          tolerance:
            description:
              - Half-width of the band around the target in which nothing is done, 0.05 being 5 percent.
              - The cluster's default is 0.1. Needs Kubernetes with the feature HPAConfigurableTolerance.
            type: float
          policies:
            description:
              - The changes that a period allows.
            type: list
            elements: dict
            suboptions:
              type:
                description:
                  - The unit of O(autoscalers[].scale_up.policies[].value).
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
          - How fast replicas are removed. An option replaces its default. By default the window is at least 300
            seconds. One step removes the smaller of 1 pod and 25 percent. A step takes 60 seconds, or the time above if
            that is longer.
        type: dict
        suboptions: *scaling_rules
      demand:
        description:
          - Whose requests tell how much load is offered, also where the GPUs are full. The HorizontalPodAutoscaler then
            follows the demand beside O(autoscalers[].metric). One decision may go to all the replicas that it needs.
          - The demand is the requests offered a second times the GPU seconds of a request, in percent of a GPU.
            Recorded rules learn the cost from the workload itself. As long as there is none, the GPUs' own load counts.
          - Beside it O(autoscalers[].metric) is the safety net of a demand that is too low. It is read as
            C(<metric>_sustained) then, the least of a pod's values in 15 seconds.
          - For V(gpu), V(gpu_util), V(gpu_compute), V(mig) and V(shared), of a Deployment or a StatefulSet. Not for
            servers whose GPU is active whatever the load, as those of language models.
          - C(docs/model.md) has the arithmetic, and what each source needs scraped.
        type: dict
        suboptions:
          source:
            description:
              - The proxy that counts the requests.
              - Leave it out to give O(autoscalers[].demand.offered) and O(autoscalers[].demand.served).
            type: str
            choices: [istio, envoy_gateway, ingress_nginx, traefik]
          name:
            description:
              - What the source calls the workload. The Service for V(istio) and V(traefik), the HTTPRoute for
                V(envoy_gateway), the Ingress for V(ingress_nginx). It is in the namespace of the autoscaler.
              - The target's name if not given.
            type: str
          offered:
            description:
              - Selector of the counters of all requests that wanted GPU time. Those that were served are among them,
                and those that were refused or failed because there was too little. Leave out clients' errors.
            type: str
          served:
            description:
              - Selector of the counters of the requests that took GPU time.
            type: str
          prior_gpu_seconds:
            description:
              - GPU seconds of one request, taken as long as nothing has been learned. For pods with several GPUs, the
                seconds for which a request keeps all of them busy.
            type: float
      extra_metrics:
        description:
          - More metrics for the same HorizontalPodAutoscaler. The one that asks for most replicas wins.
          - An entry with C(metric) is written like the autoscaler's own, with C(metric), C(metric_type),
            C(target_value) and C(target_values). Requests per second of Istio or of an ingress are a query.
          - Any other is taken as an entry of C(spec.metrics) in C(autoscaling/v2), with C(type), for CPU and memory for
            instance.
        type: list
        elements: dict
        default: []
      adopt:
        description:
          - Take over a HorizontalPodAutoscaler of this name that this module has not made. Fields that somebody else
            has changed since are set again. Fields that this module does not set are not touched.
        type: bool
        default: false
"""
