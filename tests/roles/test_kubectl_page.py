"""docs/kubectl.md: its command writes the YAML that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from collection import ROOT

PAGE = (ROOT / "docs" / "kubectl.md").read_text()


def test_the_page_for_kubectl(tmp_path: Path) -> None:
    described, hpa, rule = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    [command] = re.findall(r"^(ansible localhost .*?)^kubectl", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "autoscalers.yml").write_text(described)

    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv" / "collections"),
        },
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    written = list(yaml.safe_load_all((tmp_path / "inference.yml").read_text()))
    assert written == [yaml.safe_load(rule), yaml.safe_load(hpa)]
