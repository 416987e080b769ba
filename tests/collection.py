"""Makes this checkout importable as the collection that it is, wherever it lies."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

ROOT = Path(__file__).parents[1]

_folder = TemporaryDirectory(prefix="kubegpu-")
COLLECTIONS_PATH = _folder.name


@cache
def install() -> None:
    namespace = Path(COLLECTIONS_PATH) / "ansible_collections" / "kubegpu"
    namespace.mkdir(parents=True)
    (namespace / "autoscale").symlink_to(ROOT)
    _AnsibleCollectionFinder(paths=[COLLECTIONS_PATH, *sys.path])._install()
