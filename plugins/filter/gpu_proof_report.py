# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.proof import (
    proof_junit,
    proof_lines,
    proof_page,
    proof_summary,
)

DOCUMENTATION = r"""
name: gpu_proof_report
short_description: Render the result of gpu_proof
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Renders the result of M(kubegpu.autoscale.gpu_proof) as lines, as one line for the end of a run, or as an HTML page.
options:
  _input:
    description:
      - The C(result) of the module. With V(summary) it can be null, if the proof was skipped.
    type: dict
    required: true
  format:
    description:
      - V(text) returns lines, V(summary) one line, V(html) a self-contained page.
      - V(junit) returns a suite with a test case for each node and one for the workload that scales.
    type: str
    choices: [text, summary, html, junit]
    default: text
  error:
    description: The error of the run. Empty if it did not fail.
    type: str
    default: ""
  cluster:
    description: The name of the cluster, for V(html).
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show what was proven
  ansible.builtin.debug:
    msg: "{{ proof | kubegpu.autoscale.gpu_proof_report }}"
  vars:
    proof:
      generated_at: ""
      seconds: 0.4
      proven_now: false
      nodes: []
      chain: {status: "off", reason: "", hops: []}
"""

RETURN = r"""
_value:
  description: A list of lines for V(text), otherwise a string.
  type: raw
"""

_FORMATS = ("text", "summary", "html", "junit")


def gpu_proof_report(proof: Mapping[str, Any] | None, format: str = "text", error: str = "", cluster: str = "") -> Any:
    """A proof in one of the formats.

    Raises: AnsibleFilterError if the format is unknown, or if the input is not a result of gpu_proof.
    """
    if format not in _FORMATS:
        raise AnsibleFilterError(f"gpu_proof_report: {format} is not one of {', '.join(_FORMATS)}")
    try:
        if format == "summary":
            return proof_summary(proof, error)
        if format == "junit":
            return proof_junit(proof or {}, error)
        return proof_page(proof or {}, error, cluster) if format == "html" else proof_lines(proof or {})
    except (KeyError, TypeError, AttributeError) as err:
        raise AnsibleFilterError(f"gpu_proof_report: this is no result of gpu_proof: {err!r}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_proof_report": gpu_proof_report}
