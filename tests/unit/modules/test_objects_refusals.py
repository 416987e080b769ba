from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.modules.objects import SUBJECTS, change


@pytest.mark.parametrize("subject", SUBJECTS[0])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_an_empty_name_selects_nothing(subject: str, state: str) -> None:
    kube: Any = None
    with pytest.raises(HopError, match=f"{subject} is empty"):
        change(kube, {**dict.fromkeys(SUBJECTS[0]), subject: "", "state": state}, "prod")
