"""No release is removed without the name of its cluster: each chart role, with real helm and a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from chart_site import ROLES, Site
from collection import ROOT
from control_plane import running
from playbook import CONTEXT, changed

TABLE = yaml.safe_load((ROOT / "roles/_common/vars/main.yml").read_text())["_common_removals"]
WHAT = {role: what for role, what in TABLE.items() if what.startswith("the release ")}
# Its chart is not among the lab's. It goes by the same tasks: tests/roles/test_confirmed_removals.py.
WITHOUT_CHART = {"gpu_operator"}
STACK = "prometheus_stack"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        yield site
        site.stop()


def test_the_list_has_each_role_with_a_release() -> None:
    assert {*WHAT} == {*ROLES} | WITHOUT_CHART


@pytest.mark.parametrize("role", sorted({*WHAT} - WITHOUT_CHART))
def test_no_release_goes_without_the_name_of_its_cluster(site: Site, role: str) -> None:
    """What is asked for a wrong name, or for what is gone, is asked by the same tasks: once is enough."""
    absent, is_first = {f"{role}_state": "absent"}, role == min(WHAT)
    states = {f"{role}_state": "present", f"{role}_wait": False}
    # The stack stays until its own test, which is the last.
    chain = [STACK, role] if is_first else [role]
    assert site.bring(*chain, **states, prometheus_adapter_external_metrics=False).returncode == 0
    before = site.helm("list", "--all-namespaces", "--output", "json")
    assert role.split("_")[-1] in before

    for given in ("", "another") if is_first else ("",):
        refused = site.bring(role, **absent, kubegpu_confirm=given)
        said = " ".join((refused.stdout + refused.stderr).split())
        assert refused.returncode == 2
        assert f"This would remove {WHAT[role]}: cluster {CONTEXT} at https://" in said
        assert f"-e {role}_state=absent -e kubegpu_confirm={CONTEXT}`" in said
        assert changed(refused.stdout) == 0
    assert site.helm("list", "--all-namespaces", "--output", "json") == before

    assert changed(site.bring(role, **absent).stdout) > 0
    if is_first:
        again = site.bring(role, **absent, kubegpu_confirm="")
        assert (again.returncode, changed(again.stdout)) == (0, 0), "what is gone needs no name"
