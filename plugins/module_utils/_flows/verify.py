# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Sequence

from ..clients import KubeClient, PrometheusClient
from ..domain import Autoscaler
from .diagnose import first_broken_hop
from .observe import Observation, Observer
from .snapshot import Key
from .wait import Deadline, wait_until


def verify(
    kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], deadline: Deadline
) -> dict[Key, Observation]:
    """Wait until each ready pod of each target has a value that agrees with Prometheus, and each HPA acts on it.

    Returns: what was seen, by namespace and name.
    Raises:  HopError for the first broken hop of the first autoscaler that is not there by the deadline.
    """
    observer = Observer(kube, prometheus, autoscalers)
    verified: dict[Key, Observation] = {}
    left = list(autoscalers)

    def observe_the_rest() -> dict[Key, Observation]:
        nonlocal left
        seen = observer.observe(left)
        verified.update((key, observation) for key, observation in seen.items() if observation.is_verified)
        left = [each for each in left if (each.namespace, each.name) not in verified]
        return seen

    seen = wait_until(observe_the_rest, lambda _seen: not left, deadline)
    if left:
        late = left[0]
        raise first_broken_hop(kube, prometheus, late, seen[(late.namespace, late.name)]).error()
    return verified
