# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable

from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient
from ..components.detection import find_components
from ..errors import HopError
from ..hops import Hop
from ..reading.component_reader import ComponentReader
from .outcome import Outcome
from .wait import Deadline, wait_until


def survey_cluster(connect: Callable[[], KubeClient], server: str, inventory: str, deadline: Deadline) -> Outcome:
    """Detects the components of a cluster, as soon as it answers.

    connect: returns a client. server: address for messages. inventory: owner of the managed objects.
    Raises: HopError if the cluster does not answer in time, or treats the client as anonymous. ApiError if a part
    cannot be read for a reason other than permissions.
    """

    def ask() -> KubeClient | ApiError:
        try:
            kube = connect()
            kube.user()
        except ApiError as err:
            if err.status == 0 or err.status >= 500:
                return err
            raise
        return kube

    kube = wait_until(ask, lambda answer: isinstance(answer, KubeClient), deadline)
    if isinstance(kube, ApiError):
        fix = "kubectl get --raw /readyz, with the same kubeconfig"
        raise HopError(Hop.API_SERVER, seen=f"{server} did not answer in time: {kube}", fix=fix)
    reader = ComponentReader(kube, inventory)
    return Outcome(
        result={
            "components": find_components(reader.objects()),
            "sees_releases": reader.sees_releases,
            "serves_monitors": reader.serves_monitors,
            "runtime_classes": reader.class_names,
            "not_looked_at": reader.unread,
        }
    )
