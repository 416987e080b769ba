"""Options of a role as its argument specification types them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.kubegpu.autoscale.plugins.lookup.role_options import LookupModule


def options(role: str, **variables: Any) -> Any:
    [found] = LookupModule(loader=DataLoader(), templar=Templar(DataLoader(), variables)).run([role], variables)
    return found


def test_text_of_a_command_line_has_the_type_of_the_option() -> None:
    given = {"gpu_workload_service": "false", "gpu_workload_scrape_interval": "5", "gpu_workload_name": "chat"}
    assert options("gpu_workload", **given) == {"service": False, "scrape_interval": 5, "name": "chat"}


def test_other_variables_are_left_out_and_templates_are_rendered() -> None:
    image = trust_as_template("{{ registry }}/python")
    found = options("gpu_workload", gpu_workload_image=image, registry="mirror", __gpu_workload_seen={}, gpu_doctor_x=1)
    assert found == {"image": "mirror/python"}


def test_an_empty_dictionary_stays_empty() -> None:
    assert options("gpu_workload", gpu_workload_node_selector={}) == {"node_selector": {}}


def test_a_wrong_type_is_an_error_with_the_name_of_the_option() -> None:
    with pytest.raises(AnsibleError, match=r"role gpu_workload: .*gpu_workload_scrape_interval.*Next: correct"):
        options("gpu_workload", gpu_workload_scrape_interval="soon")


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(AnsibleError, match=r"unknown role gpu_workloads\. Next"):
        options("gpu_workloads")
