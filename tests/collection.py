"""Makes this checkout importable as the collection that it is, wherever it lies."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

ROOT = Path(__file__).parents[1]

_collections = TemporaryDirectory(prefix="kubegpu-")


def install() -> None:
    namespace = Path(_collections.name) / "ansible_collections" / "kubegpu"
    namespace.mkdir(parents=True)
    (namespace / "autoscale").symlink_to(ROOT)
    _AnsibleCollectionFinder(paths=[_collections.name, *sys.path])._install()
