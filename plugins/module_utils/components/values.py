# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Values of a chart that an inventory adds to those of a role."""

from __future__ import annotations

from collections.abc import Sequence


def merged_flags(own: Sequence[str], given: Sequence[str]) -> list[str]:
    """Flags of the role that are not given, then the given ones: one more flag takes none of the others away."""
    names = {_name(flag) for flag in given}
    return [*(flag for flag in own if _name(flag) not in names), *given]


def _name(flag: str) -> str:
    return flag.partition("=")[0]
