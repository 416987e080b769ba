"""Checks, their findings and their order hold for any state, here that of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import (
    ALL,
    Check,
    CheckResult,
    FindingType,
    check,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.findings import first_causes, results_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop


@dataclass(frozen=True)
class Server:
    has_gpu: bool = True
    has_driver: bool = True
    unavailable: Mapping[str, str] = field(default_factory=dict)


NO_GPU = FindingType("NO_GPU", Hop.NODE, "error", cause="no GPU is on the PCI bus", fix="add a GPU")
NO_DRIVER = FindingType(
    "NO_DRIVER", Hop.NODE, "error", cause="no driver is loaded", fix="run nvidia_driver", is_consequence=True
)


@check("GPUs", NO_GPU)
def gpus(server: Server) -> Iterator[CheckResult]:
    if not server.has_gpu:
        yield CheckResult(NO_GPU, "gpu1", "lspci shows no GPU", frozenset({ALL}))


@check("driver", NO_DRIVER, needs=("driver",))
def driver(server: Server) -> Iterator[CheckResult]:
    if not server.has_driver:
        yield CheckResult(NO_DRIVER, "gpu1", "no /dev/nvidia0")


CHECKS: tuple[Check[Server], ...] = (gpus, driver)


def found(server: Server) -> list[tuple[str, int]]:
    """Each finding with the number of its consequences."""
    findings = first_causes(results_of(CHECKS, server))
    return [(finding.type.id, len(finding.consequences)) for finding in findings]


def test_a_fault_is_found() -> None:
    assert found(Server()) == []
    assert found(Server(has_driver=False)) == [("NO_DRIVER", 0)]


def test_a_fault_that_another_explains_is_its_consequence() -> None:
    assert found(Server(has_gpu=False, has_driver=False)) == [("NO_GPU", 1)]


def test_a_check_whose_field_could_not_be_read_is_not_made() -> None:
    server = Server(has_driver=False, unavailable={"driver": "no right to read /proc"})
    assert found(server) == []
    assert [check.name for check in CHECKS if check.obstacles(server)] == ["driver"]
