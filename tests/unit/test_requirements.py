"""Each module asks for the Kubernetes client that requirements.txt has."""

from __future__ import annotations

import re

from collection import ROOT


def test_modules_ask_for_what_the_requirements_have() -> None:
    [wanted] = re.findall(r"^kubernetes>=(\S+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    sources = [path.read_text() for path in sorted((ROOT / "plugins" / "modules").glob("*.py"))]
    asked = {version for text in sources for version in re.findall(r"kubernetes >= (\S+) \(Python\)", text)}
    assert asked == {wanted}
