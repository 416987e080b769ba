"""A Git repository with the folder that the playbook `gitops` writes, as a GitOps tool follows it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from chart_site import Site

Object = dict[str, Any]
PATH = "clusters/gpus"


class FleetRepository:
    """`place`: the variables of the role gitops that name tool and source. `tools`: kinds of the tool's own objects."""

    def __init__(self, site: Site, work: Path, inventory: Object, place: Object, *tools: str) -> None:
        self.site, self.work = site, work
        self._inventory, self._place, self._tools = inventory, place, tools
        self.folder = work / PATH
        self._git("init", "--quiet", "--initial-branch=main")

    def push(self, *autoscalers: Object) -> None:
        """What an administrator does after a change of the inventory."""
        place = {"gitops_folder": str(self.folder), "gitops_path": PATH, **self._place}
        unreached = {"kubegpu_kubeconfig": "/there/is/none"}
        wanted = {**self._inventory, "gpu_autoscaling_autoscalers": autoscalers}
        done = self.site.play("kubegpu.autoscale.gitops", **wanted, **place, **unreached)
        assert done.returncode == 0
        self._git("add", "--all")
        self._git("-c", "user.name=fleet", "-c", "user.email=fleet@example.com", "commit", "--quiet", "--message=fleet")

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.work, check=True)

    def written(self) -> list[Object]:
        """The objects of the folder, without the tool's own."""
        texts = [file.read_text() for file in sorted(self.folder.rglob("*.yaml"))]
        manifests = [manifest for text in texts for manifest in yaml.safe_load_all(text)]
        return [manifest for manifest in manifests if manifest["kind"] not in self._tools]
