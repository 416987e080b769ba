"""Records the reasons that Kubernetes can give: `PYTHONPATH=tools python tools/record_reasons.py SOURCE VERSION`.

SOURCE is its source, and beside it that of k8s.io/cri-api. The record is tests/unit/doctor/upstream_reasons.yml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import indented_yaml

RECORD = Path(__file__).parent.parent / "tests" / "unit" / "doctor" / "upstream_reasons.yml"
_CONSTANT = re.compile(r'= +"([A-Z]\w+)"')
_ERROR = re.compile(r'errors\.New\("([A-Z]\w+)"\)')
_CONDITION = re.compile(
    r'setCondition\(hpa, autoscalingv2\.\w+, v1\.ConditionFalse, "(\w+)"'
    r'|UnableComputeReplicaCountCondition\(hpa, "(\w+)"'
)
_SCHEDULER = re.compile(r'[eE]rrReason\w* *= "(.+)"')
_LIFECYCLE = ("pkg/kubelet/lifecycle/predicate.go", "pkg/kubelet/lifecycle/handlers.go")
_HPA = "pkg/controller/podautoscaler/horizontal.go"
_CONTAINER = ("pkg/kubelet/images/types.go", "pkg/kubelet/kuberuntime/kuberuntime_container.go")
_CONTAINERS = "pkg/kubelet/container/sync_result.go"


def read(source: Path, version: str) -> dict[str, object]:
    """Lists of reasons by their writer."""

    def found(pattern: re.Pattern[str], *files: Path) -> Iterator[str]:
        for path in files:
            for groups in pattern.finditer(path.read_text()):
                yield next(filter(None, groups.groups()))

    [cri] = source.parent.glob(f"cri-api@v0.{version.partition('.')[2]}")
    plugins = (source / "pkg" / "scheduler" / "framework" / "plugins").rglob("*.go")
    named = [source / path for path in (*_CONTAINER, _CONTAINERS)]
    return {
        "version": version,
        "kubelet_events": sorted({*found(_CONSTANT, source / "pkg" / "kubelet" / "events" / "event.go")}),
        "containers": sorted({*found(_ERROR, *named, cri / "pkg" / "errors" / "errors.go")}),
        "rejections": sorted({*found(_CONSTANT, *(source / path for path in _LIFECYCLE))}),
        "hpa_conditions": sorted({*found(_CONDITION, source / _HPA)}),
        "scheduler": sorted({*found(_SCHEDULER, *plugins)}),
    }


if __name__ == "__main__":
    RECORD.write_text(indented_yaml.dump(read(Path(sys.argv[1]), sys.argv[2])))
