"""An earlier demo, as its demo.json has it, to show beside a new one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab.load.scenario import Recording, Sample
from lab.load.summary import Summary


@dataclass(frozen=True)
class Earlier:
    recording: Recording
    summary: Summary

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None if there is no such file: the first demo of a lab has nothing beside it."""
        if not path.exists():
            return None
        numbers = json.loads(path.read_text())
        samples = [Sample(**sample) for sample in numbers["samples"]]
        return cls(Recording(samples, numbers["begins_s"]), Summary(**numbers["summary"]))
