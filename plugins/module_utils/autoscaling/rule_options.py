# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kube_names import DNS_LABEL
from .manifests import RuleOptions
from .options import Options
from .raw_metrics import check_labels

# Prometheus has durations of days and longer, but no rule of ours is of use that waits for hours.
_LONGEST_INTERVAL_S = 3600


def rule_options(given: Mapping[str, Any], path: str = "") -> RuleOptions:
    """Where the recording rules go, with the defaults for what is not given.

    Raises: HopError if the API server would reject the rules for it.
    """
    options = Options(given, ("rule_namespace", "rule_labels", "evaluation_interval"), path)
    default = RuleOptions()
    check_labels(options, "rule_labels")
    return RuleOptions(
        namespace=options.text("rule_namespace", default.namespace, DNS_LABEL) or default.namespace,
        labels=options.raw("rule_labels", default.labels),
        evaluation_interval_s=options.whole(
            "evaluation_interval", 1, _LONGEST_INTERVAL_S, default.evaluation_interval_s
        ),
    )
