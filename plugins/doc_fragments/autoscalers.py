# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  autoscalers:
    description: The autoscalers, one for each workload.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the HorizontalPodAutoscaler.
          - The default is the target's name.
        type: str
      namespace:
        description: Namespace of the target and of the HorizontalPodAutoscaler.
        type: str
        default: default
      target:
        description:
          - The object to scale, which must have a scale subresource.
          - Required with O(state=present).
        type: dict
        suboptions:
          kind:
            description: Kind of the target.
            type: str
            default: Deployment
          name:
            description: Name of the target.
            type: str
            required: true
          api_version:
            description:
              - API version of the kind.
              - It is optional for V(Deployment), V(StatefulSet), V(ReplicaSet), V(Rollout) and V(LeaderWorkerSet).
            type: str
      metric:
        description:
          - Name of a profile, or a dictionary with C(name) and C(query).
          - V(gpu) is the share of time in which the GPU's engine was active, DCGM_FI_PROF_GR_ENGINE_ACTIVE. For GPUs
            that do not report it, it is DCGM_FI_DEV_GPU_UTIL. V(gpu_util) is always the latter.
          - V(gpu_compute) is the larger of DCGM_FI_PROF_SM_ACTIVE and DCGM_FI_PROF_DRAM_ACTIVE of each GPU.
          - V(gpu_memory) is the share of a GPU's memory that is in use.
          - V(mig) is the engine activity of MIG instances. V(shared) is for GPUs that several pods share.
          - These values are percent of a GPU, averaged over the GPUs of a pod.
          - V(llm) consists of two metrics of a model server, C(llm_requests_waiting) and C(llm_kv_cache).
          - V(llm_in_flight) is the number of running and waiting requests in vLLM, SGLang, TGI, Triton, TensorRT-LLM, a
            NIM or llama.cpp. It requires O(autoscalers[].target_value).
          - C(query) is PromQL that returns one series per C(namespace) and C(pod). It is recorded as C(name), which
            must be lower case. With C(per=workload) it returns the workload's total, for example requests per second at
            its ingress.
          - With O(autoscalers[].metric_type=External) C(query) is optional. Without it, C(selector) has the labels of
            an existing external metric.
        type: raw
        default: gpu
      metric_type: &metric_type
        description:
          - How the HorizontalPodAutoscaler reads the metric.
          - V(Pods) reads a value for each pod. Pods that are pending or do not report yet dampen the average, which
            avoids overshooting. It is the default, except for a metric with C(per=workload).
          - V(Object) reads one value of the target, which a separate rule records. The average over the pods is
            compared with the target value. A total is divided by the replicas first.
          - V(External) reads a total from C(external.metrics.k8s.io), which is divided by the replicas.
          - V(Object) and V(External) require a Deployment, a StatefulSet or a Rollout, unless the metric has no query.
        type: str
        choices: [Pods, Object, External]
      target_value: &target_value
        description:
          - Target average over the pods, in percent or in the query's unit. Percent are more than 1 and at most 100.
          - The default depends on the profile, and is 60 percent for most profiles. V(llm_in_flight) has no default.
        type: float
      target_values: &target_values
        description:
          - Target values by metric for a profile with several metrics. For V(llm) these are C(llm_requests_waiting) and
            C(llm_kv_cache).
        type: dict
      min_replicas:
        description:
          - Minimum number of replicas.
          - V(0) requires a metric that exists without pods, with C(per=workload) for example, and with
            O(autoscalers[].backend=adapter) Kubernetes 1.37 or the feature gate C(HPAScaleToZero). The module fails
            if the autoscaler could not reach zero, or not leave it again.
            L(Backends,https://github.com/kubegpu/autoscale/blob/main/docs/backends.md) has the conditions.
        type: int
        default: 1
      max_replicas:
        description:
          - Maximum number of replicas. The module warns if the cluster does not have enough GPUs for them.
          - Required with O(state=present).
        type: int
      priority:
        description:
          - Which autoscalers get GPUs first if their maxima together exceed the GPUs, -1000 to 1000. The highest
            priority is first.
          - It only has an effect with C(divide_gpus) of M(kubegpu.autoscale.gpu_autoscaler). It does not preempt pods.
        type: int
        default: 0
      dead_time_seconds:
        description:
          - Seconds from a scaling decision until the metric shows its effect, 1 to 1800.
          - It includes the time until a new pod is scheduled and ready and its first value is recorded.
          - The default rule for scaling up is computed from it, except with O(autoscalers[].demand).
          - M(kubegpu.autoscale.gpu_autoscaler_plan) uses it as the start time of a pod.
          - By default it is measured on the target's pods. Every run warns if the measured value exceeds 300 and slows
            scaling up.
        type: int
      scale_up:
        description:
          - How fast replicas are added. Each option replaces its default. By default there is no stabilization window.
          - With O(autoscalers[].demand), or if all metrics are the activity of GPUs, the default is
            O(autoscalers[].max_replicas) pods in 15 seconds. Otherwise each period adds the larger of 2 pods and 50
            percent. The period is the time until a new pod is ready and visible in the metric.
          - That time is measured on the target's pods and stored in an annotation. Without pods it is assumed to be 60
            seconds. The result explains it.
        type: dict
        suboptions: &scaling_rules
          stabilization_window_seconds:
            description:
              - Stabilization window in seconds (0-3600). The HPA applies the most conservative recommendation made
                within it.
            type: int
          select_policy:
            description:
              - V(Max) uses the policy with the largest change, V(Min) the policy with the smallest change, and
                V(Disabled) disables scaling in this direction.
            type: str
            choices: [Max, Min, Disabled]
          tolerance:
            description:
              - Tolerated deviation from the target without scaling, for example 0.05 for 5 percent.
              - The cluster's default is 0.1. It requires the Kubernetes feature HPAConfigurableTolerance.
            type: float
          policies:
            description: Policies that limit the change per period.
            type: list
            elements: dict
            suboptions:
              type:
                description: The unit of O(autoscalers[].scale_up.policies[].value).
                type: str
                choices: [Pods, Percent]
                required: true
              value:
                description: Maximum change in pods or percent of the pods.
                type: int
                required: true
              period_seconds:
                description: Length of the period in seconds (1-1800).
                type: int
                required: true
      scale_down:
        description:
          - How fast replicas are removed. Each option replaces its default. By default the stabilization window is
            300 seconds, and each period of 60 seconds removes the smaller of 1 pod and 25 percent.
        type: dict
        suboptions: *scaling_rules
      demand:
        description:
          - Source of request counts, used to estimate load even when the GPUs are saturated. The
            HorizontalPodAutoscaler then follows the demand in addition to O(autoscalers[].metric), and can reach the
            required replicas in one decision.
          - The demand is the offered requests per second times the GPU seconds of a request, in percent of a GPU.
            Recording rules learn the GPU seconds of a request from the workload. Until then, the load of the GPUs is
            used.
          - O(autoscalers[].metric) is then the fallback if the demand is too low. It is read as C(<metric>_sustained),
            the minimum of a pod's values in 15 seconds.
          - It supports V(gpu), V(gpu_util), V(gpu_compute), V(mig) and V(shared), and a Deployment or a StatefulSet. Do
            not use it for servers whose GPU is active at any load, such as language models.
          - L(The model,https://github.com/kubegpu/autoscale/blob/main/docs/model.md) has the arithmetic, and the
            scraped metrics that each source requires.
        type: dict
        suboptions:
          source:
            description:
              - The proxy that counts the requests.
              - Omit it if you set O(autoscalers[].demand.offered) and O(autoscalers[].demand.served).
            type: str
            choices: [istio, envoy_gateway, ingress_nginx, traefik]
          name:
            description:
              - Name of the workload in the source. This is the Service for V(istio) and V(traefik), the HTTPRoute for
                V(envoy_gateway), and the Ingress for V(ingress_nginx). It must be in the namespace of the autoscaler.
              - The default is the target's name.
            type: str
          offered:
            description:
              - Selector of the counters of all requests for GPU time. It must include served requests, and requests
                that were rejected or failed because of overload. It must exclude client errors.
            type: str
          served:
            description: Selector of the counters of the requests that used GPU time.
            type: str
          prior_gpu_seconds:
            description:
              - GPU seconds of a request, used until a value is learned. For pods with several GPUs, these are the
                seconds for which a request uses all of them.
            type: float
      extra_metrics:
        description:
          - Additional metrics for the same HorizontalPodAutoscaler. The metric with the most replicas wins.
          - An entry has either O(autoscalers[].extra_metrics[].metric), or O(autoscalers[].extra_metrics[].type) with
            the section of that type, as an entry of C(spec.metrics) in C(autoscaling/v2).
        type: list
        elements: dict
        default: []
        suboptions:
          metric:
            description: As O(autoscalers[].metric), for example a query for the requests per second of an ingress.
            type: raw
          metric_type: *metric_type
          target_value: *target_value
          target_values: *target_values
          type:
            description: Type of an entry of C(spec.metrics), for example V(Resource) for CPU and memory.
            type: str
            choices: [Resource, ContainerResource, Pods, Object, External]
          resource: &section
            description: The section of the entry's type, with the fields of C(autoscaling/v2).
            type: dict
          containerResource: *section
          pods: *section
          object: *section
          external: *section
      adopt:
        description:
          - Adopt an existing HorizontalPodAutoscaler of this name. Fields that other managers have changed are
            overwritten. Fields that this module does not set do not change.
          - With O(autoscalers[].backend=keda) this also applies to an existing ScaledObject of this name. Its triggers
            are replaced.
        type: bool
        default: false
      backend:
        description:
          - Backend that serves the metrics of this autoscaler to the HorizontalPodAutoscaler controller.
          - The default is O(metrics_backend).
        type: str
        choices: [adapter, keda]
  metrics_backend:
    description:
      - Default of O(autoscalers[].backend).
      - V(adapter) creates a HorizontalPodAutoscaler, whose metrics prometheus-adapter serves.
      - V(keda) creates a ScaledObject. KEDA creates the HorizontalPodAutoscaler and serves its metrics. KEDA must be
        installed. Recording rules apply the decision of the HorizontalPodAutoscaler controller on Pods metrics, so
        that both backends scale alike. It requires Kubernetes 1.35 or later.
      - If you change the backend of an autoscaler, the replicas do not change, and the HorizontalPodAutoscaler keeps
        its history.
    type: str
    choices: [adapter, keda]
    default: adapter
"""
