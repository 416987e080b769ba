# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  metrics:
    description:
      - Metrics of pods that are recorded without an autoscaler, for existing HorizontalPodAutoscalers.
        prometheus-adapter serves each of them as a metric of type Pods.
      - The list has all metrics of the inventory. Its other metrics are deleted. Without the option they stay.
      - All runs without an inventory have the ID V(default). With this ID the list adds or changes its metrics, and no
        other metric is deleted.
      - A metric that an HPA of its namespace reads is not deleted. A warning names it. The same holds for the
        PodMonitor of a removed O(metrics[].scrape).
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the metric, in lower case.
          - An entry without a name only scrapes pods, for example for an autoscaler that reads their metrics.
        type: str
      namespace:
        description: Namespace of the pods. The metric exists in no other namespace.
        type: str
        default: default
      query:
        description:
          - PromQL that returns one series per C(namespace) and C(pod).
          - The default is the gauge of that name, unchanged.
        type: str
      scrape:
        description: Creates a PodMonitor, so that Prometheus scrapes the pods. It requires the Prometheus operator.
        type: dict
        suboptions:
          port:
            description: Name of the container port that serves the metrics. Pods without this port are not scraped.
            type: str
            required: true
          path:
            description: Path of the metrics.
            type: str
            default: /metrics
          interval:
            description: Seconds between two scrapes.
            type: int
            default: 5
          labels:
            description: Labels of the pods. The default is all pods of the namespace that have the port.
            type: dict
            default: {}
"""
