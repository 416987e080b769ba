# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Face of the code that reads and writes the formats of files on a node."""

from __future__ import annotations

from ._domain.docker import with_runtime, without_runtime
from ._domain.openpgp import openpgp_fingerprints
from ._domain.toml import from_toml, to_toml, with_import, without_import

__all__ = [
    "from_toml",
    "openpgp_fingerprints",
    "to_toml",
    "with_import",
    "with_runtime",
    "without_import",
    "without_runtime",
]
