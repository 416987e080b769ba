from __future__ import annotations

from collection import install

install()
