"""Two inventories have two IDs, also in one folder, and each clone of a repository has the same."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.identity import inventory_id
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import DEFAULT_INVENTORY

USUAL = {
    "inventories/prod/hosts.yml": "prod",
    "inventories/prod/hosts": "prod",
    "inventories/prod/inventory.ini": "prod",
    "inventories/prod/prod.yml": "prod",
    "inventory/prod.yml": "inventory-prod",
    "inventory/staging.yml": "inventory-staging",
    "inventories/prod/aws_ec2.yml": "prod-aws_ec2",
    "inventories/staging/aws_ec2.yml": "staging-aws_ec2",
}


@pytest.mark.parametrize("path", USUAL)
def test_the_id_of_an_inventory(path: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    assert inventory_id(str(tmp_path / path)) == USUAL[path]
    assert inventory_id(str((tmp_path / path).parent)) == Path(path).parent.name


def test_a_run_without_an_inventory_has_one_id_in_each_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert inventory_id("") == DEFAULT_INVENTORY


def test_no_two_of_other_names_share_one() -> None:
    named = [path for path in USUAL if Path(path).stem not in ("hosts", "inventory", Path(path).parent.name)]
    assert all(USUAL[one] != USUAL[other] for one, other in combinations(named, 2))
