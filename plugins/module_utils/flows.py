# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules do: bring a cluster to what is desired, and prove that it works. Raises, never fails a module."""

from __future__ import annotations

from ._flows.backend import Backend, PrometheusAdapter
from ._flows.capture import capture
from ._flows.condition import Condition
from ._flows.crds import apply_crds, remove_crds
from ._flows.doctor import examine
from ._flows.info import read_autoscalers
from ._flows.metric_answer import MetricQuery
from ._flows.metric_query import metric_condition, read_metric, read_metric_until
from ._flows.outcome import Outcome
from ._flows.reconcile import reconcile, remove
from ._flows.verify import verify
from ._flows.wait import Deadline, wait_until

__all__ = [
    "Backend",
    "Condition",
    "Deadline",
    "MetricQuery",
    "Outcome",
    "PrometheusAdapter",
    "apply_crds",
    "capture",
    "examine",
    "metric_condition",
    "read_autoscalers",
    "read_metric",
    "read_metric_until",
    "reconcile",
    "remove",
    "remove_crds",
    "verify",
    "wait_until",
]
