"""What apt reads in a test."""

from __future__ import annotations

from pathlib import Path


def apt_paths(folder: Path) -> dict[str, str]:
    """Files of a set of packages, in a folder of this machine."""
    return {
        name: str(folder / f"kubegpu.{name}") for name in ("key", "source", "pin", "before", "config", "needrestart")
    }


def installed_alone(folder: Path) -> dict[str, str]:
    """Settings of an apt that knows what is installed here, and reads no lists of what is not: that takes a second."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "apt.conf").write_text(f'Dir::State::lists "{folder}/lists";\n')
    return {"APT_CONFIG": str(folder / "apt.conf")}
