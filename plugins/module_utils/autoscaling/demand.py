# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Demand: the load that requests offer to a workload, in percent of a GPU. It has no upper limit, unlike a GPU's load.

Demand is the requests offered per second times the cost of a request, which is learned: GPU time over served requests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..errors import HopError
from ..hops import Hop
from .kube_names import DNS_SUBDOMAIN
from .metrics import PERCENT, Metric, demand_name, sustained_name
from .options import Options, as_number, shown
from .promql import equal, quoted
from .request_counters import COUNTERS

OPTIONS = ("source", "name", "offered", "served", "prior_gpu_seconds")

# Quoted text in PromQL: escapes are Go's, only backquoted text may contain newlines, and braces are plain characters.
_ESCAPE = r"\\(?:[abfnrtv\\{quote}]|[0-3][0-7]{{2}}|x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}})"
_QUOTED = "|".join(
    [*(rf"{quote}(?:[^{quote}\\\n]|{_ESCAPE.format(quote=quote)})*{quote}" for quote in ('"', "'")), "`[^`]*`"]
)
_MATCHER = rf"\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:{_QUOTED})\s*"
_SELECTOR = re.compile(rf"[a-zA-Z_:][a-zA-Z0-9_:]*\s*(?:\{{\s*(?:{_MATCHER}(?:,{_MATCHER})*,?\s*)?\}})?")

# Plausible costs, in GPU seconds per request. Others are ignored.
LEAST_COST, MOST_COST = 0.00001, 100
# Seconds for which a learned cost is used if nothing can be learned, such as over a night.
HELD_S = 86_400

# Request rates: function, window in seconds, and required number of requests. The first window with enough is used,
# so that chance changes a rate by at most a tenth, which an HPA tolerates. For two minutes a third of that is enough.
_RATES = (("irate", 5, 100), ("rate", 10, 100), ("rate", 30, 100), ("rate", 120, 30))
# Two consecutive rates are of the same load if the smaller is at least this part of the larger.
STEADY = 0.8
# A lower bound of the rate in a window too short for it: the rate minus this many standard deviations. The deviation
# of a count is its square root (Poisson). A step is seen in its first seconds. Chance seldom exceeds the load twice.
_SURELY = 2.5
# A window between two scrapes and ten seconds. Answers that were held up would raise it, so it is for few requests.
_QUICK_S = 5

# Maximum ratio of offered to served requests. A workload that fails more often is broken rather than too small.
_MOST_PER_ANSWER = 10

# Window for learning, which must have no gaps. At its edges requests and GPU time are visible at different moments.
# The error depends on the change of the load, so both halves must be alike in requests and in GPU time.
_WINDOW_S = 60
_LEAST_BUSY_PERCENT = 10
_ALIKE = (0.8, 1.25)
_LEAST_SERVED_PER_S = 0.5
_LEAST_COMPLETE = 0.9
# Seconds for which a missing counter counts: a proxy that is not scraped removes requests, but no GPU time.
_MISSED_S = 900
# If a smaller share is served, GPUs are full for an unknown reason, so a rising cost is ignored.
_LEAST_SERVED_SHARE = 0.9
# Between two evaluations, seconds: each half of the window has one.
LONGEST_INTERVAL_S = _WINDOW_S // 2
# The median over this time counts, so that no load step or restart distorts it.
_MEMORY = "5m"
# How far back a rule reads its own previous value.
_BEFORE = "5m"

# Load of a GPU that lasts less than these seconds does not override a demand. When pods become ready one by one,
# the first ones are full for a moment, and values of different moments add up to too much.
SUSTAINED_S = 15

# Workloads whose pods are matched by name, because kube-state-metrics would show a new pod a minute late. Until
# then its requests would count without its GPU.
KINDS = ("Deployment", "StatefulSet")


@dataclass(frozen=True)
class Demand:
    """The source of request counts.

    offered: selectors of counters of requests that were answered, rejected, or failed for lack of GPU time.
    served:  selectors of those that took GPU time.
    prior:   GPU seconds per request until a cost is learned; None for none.
    source:  key of COUNTERS; empty for the user's own selectors.
    """

    offered: tuple[str, ...]
    served: tuple[str, ...]
    prior: float | None = None
    source: str = ""

    @classmethod
    def from_options(cls, given: Options, namespace: str, target: str) -> Demand:
        """Parse a demand. Raises: HopError if the options are incomplete or contradictory."""
        prior = _prior(given)
        source, selectors = given.text("source"), [option for option in ("offered", "served") if option in given]
        if not source:
            if len(selectors) < 2 or "name" in given:
                raise given.error(
                    "source",
                    f"is missing, and {' and '.join(given)} are not a pair of counters",
                    f"give source ({', '.join(COUNTERS)}), or offered and served, the selectors of two counters",
                )
            offered, served = (_selector(given, option) for option in selectors)
            return cls((offered,), (served,), prior)
        if source not in COUNTERS or selectors:
            raise given.error(
                "source",
                f"is {shown(source)}{' beside selectors' * bool(selectors)}",
                f"use one of {', '.join(COUNTERS)}; for others leave source out and give offered and served",
            )
        counter, name = COUNTERS[source], given.text("name", rule=DNS_SUBDOMAIN) or target
        if "." in name and not counter.dots:
            raise given.error(
                "name",
                f"is {shown(name)}, and Envoy counts the requests of an {counter.named} whose name has a dot under "
                "another series",
                f"give the {counter.named} a name without a dot, or give offered and served in place of source",
            )
        return cls(counter.offered(namespace, name), counter.served(namespace, name), prior, source)

    def probes(self, workload: str) -> Iterator[Metric]:
        """Queries to test before anything is recorded: whether the counters exist."""
        for outcome, selectors in (("offered", self.offered), ("served", self.served)):
            yield Metric(f"requests {outcome} to {workload}", f"count({' or '.join(selectors)})", per="workload")


def sustained_metric(of: Metric, namespace: str, pods: str) -> Metric:
    """Series of each pod beside the demand, in case the demand is too low.

    pods: regular expression of the pods' names.
    """
    values = _of_pods(of, namespace, pods)
    # With a longer evaluation interval the window has no sample. Then the last value counts as sustained.
    return replace(of, name=sustained_name(of.name), query=f"min_over_time({values}[{SUSTAINED_S}s])\nor\n{values}")


def demand_metric(of: Metric, labels: Mapping[str, str]) -> Metric:
    """The series for the HPA: the demand, or else the load of the GPUs, so that it always has a value.

    Retries of clients are not a demand if nothing, or almost nothing, is answered.
    labels: of the workload's series.
    """
    series = _series(of, _matchers(labels))
    query = f"""\
100 * {series["offered"]} * {series["cost"]}
and
{series["offered"]} <= {_MOST_PER_ANSWER} * {series["answered"]}
or
{series["busy"]}"""
    return Metric(demand_name(of.name), query, PERCENT, (of.latest,), per="workload")


def recordings(
    demand: Demand, of: Metric, labels: Mapping[str, str], pods: str, interval_s: int
) -> Iterator[tuple[str, str]]:
    """Series and PromQL of the parts of the demand, in the order of evaluation.

    labels: labels of the workload's series. pods: regular expression of pod names. interval_s: between two evaluations.
    Raises: HopError if the interval is too long to learn anything.
    """
    if interval_s > LONGEST_INTERVAL_S:
        raise HopError(
            Hop.SPEC,
            seen=f"the demand of {labels['namespace']}/{[*labels.values()][-1]} cannot be learned, because "
            f"evaluation_interval is {interval_s}",
            fix=f"set it to at most {LONGEST_INTERVAL_S}, or leave demand out",
        )
    matchers, raw = _matchers(labels), f"namespace_workload:{demand_name(of.name)}:"
    series, counters = _series(of, matchers), f"{raw}counters{matchers}"
    samples = math.ceil(_LEAST_COMPLETE * _WINDOW_S / interval_s)
    yield f"{raw}busy", f"sum({_of_pods(of, labels['namespace'], pods)})"
    yield f"{raw}counters", f"count({' or '.join(demand.offered)})"
    # irate uses two samples. Counters are assumed to be scraped as often as rules are evaluated.
    rates = "\n  or\n".join(
        f"  {_per_second(function, demand.offered, f'[{span}s]')}"
        f" >= {requests / (interval_s if function == 'irate' else span):.3g}"
        for function, span, requests in _RATES
    )
    yield f"{raw}rate", f"(\n{rates}\n)\nand\n{series['counters']}"
    yield f"{raw}least", _least(demand, interval_s)
    # Delayed answers arrive all at once, and the first rate after a step covers only a part of it. A value that
    # occurs twice is not affected.
    twice, thrice = (f"{raw}rate{matchers}[{math.ceil((many - 0.5) * interval_s)}s]" for many in (2, 3))
    at_least = f"{raw}least{matchers}[{math.ceil(1.5 * interval_s)}s]"
    yield (
        f"{raw}offered",
        f"""\
max(
  (
    min_over_time({twice}) >= {STEADY:g} * max_over_time({twice})
    or min_over_time({thrice})
    or label_replace(min_over_time({at_least}), "of", "least", "", "")
  )
  and on () {raw}rate{matchers}
)""",
    )
    yield f"{raw}answered", _answered(demand, f"{raw}rate{matchers}")
    yield f"{raw}served", _served(demand, counters, samples)
    yield f"{raw}sample", _sample(demand, raw, matchers, samples)
    yield f"{raw}learned", f"sum(quantile_over_time(0.5, {raw}sample{matchers}[{_MEMORY}]) and {raw}sample{matchers})"
    yield (
        f"{raw}learned_time",
        f"sum(timestamp({raw}learned{matchers}))\nor\nsum(last_over_time({raw}learned_time{matchers}[{_BEFORE}]))",
    )
    held = f"sum(last_over_time({raw}cost{matchers}[{_BEFORE}])) and time() - {series['learned_time']} < {HELD_S}"
    prior = "" if demand.prior is None else f"\nor\nvector({demand.prior:g})"
    yield f"{raw}cost", f"{series['learned']}\nor\n({held}){prior}"


def _answered(demand: Demand, rate: str) -> str:
    """PromQL: requests served per second, quickly 0 when nothing is served any more. rate: of offered requests.

    With few requests, some scrape intervals have none that was served.
    """
    (_irate, latest_s, _any), (_rate, short_s, many), (_long, long_s, _few), (_longest, longest_s, _fewest) = _RATES
    per_second = [_per_second("rate", demand.served, f"[{span_s}s]") for span_s in (long_s, longest_s)]
    latest = _per_second("irate", demand.served, f"[{latest_s}s]")
    return f"{latest}\nand on ()\n{rate} >= {many / short_s:g}\nor\n" + "\nor\n".join(per_second)


def _served(demand: Demand, counters: str, samples: int) -> str:
    """PromQL: requests served per second in the last minute, if that minute is valid for a cost.

    counters: number of counters. samples: number in a minute without gaps.
    """
    least, most = _ALIKE
    minute = _per_second("rate", demand.served, f"[{_WINDOW_S}s]")
    # Compares halves with at least two scrapes each; otherwise this minute and the previous one.
    changes = "\n    or\n".join(
        f"    {_per_second('rate', demand.served, f'[{span_s}s]')}"
        f" / {_per_second('rate', demand.served, f'[{span_s}s]', span_s)}"
        for span_s in (_WINDOW_S // 2, _WINDOW_S)
    )
    return f"""\
{minute} >= {_LEAST_SERVED_PER_S:g}
and on ()
(
  (
{changes}
  ) >= {least:g} <= {most:g}
)
and on ()
(count_over_time({counters}[{_WINDOW_S}s]) >= {samples})
and on ()
(min_over_time({counters}[{_WINDOW_S}s]) >= max_over_time({counters}[{_MISSED_S}s]))"""


def _sample(demand: Demand, raw: str, matchers: str, samples: int) -> str:
    """PromQL: the cost in the last minute. For idle GPUs the upper bound of the cost, if the current cost is above it.

    raw: prefix of the parts' names. samples: number in a minute without gaps.
    """
    busy, served, cost = (f"{raw}{part}{matchers}" for part in ("busy", "served", "cost"))
    window, half = f"[{_WINDOW_S}s]", f"[{_WINDOW_S // 2}s]"
    least, most = _ALIKE
    refused = (
        f"{_per_second('rate', demand.served, window)}"
        f" < {_LEAST_SERVED_SHARE:g} * {_per_second('rate', demand.offered, window)}"
    )
    return f"""\
sum(
  avg_over_time({busy}{window}) / 100 / {served}
  and avg_over_time({busy}{half}) >= {_LEAST_BUSY_PERCENT}
  and avg_over_time({busy}{half}) / avg_over_time({busy}{half} offset {_WINDOW_S // 2}s) >= {least:g} <= {most:g}
  and count_over_time({busy}{window}) >= {samples}
  unless (
    avg_over_time({busy}{window}) / 100 / {served} > {most:g} * {cost}
    and {raw}learned_time{matchers} > time() - {HELD_S}
    and on () {refused}
  )
  or
  {_LEAST_BUSY_PERCENT} / 100 / {served} < {least:g} * {cost}
  and max_over_time({busy}{window}) < {_LEAST_BUSY_PERCENT}
  and count_over_time({busy}{window}) >= {samples}
) > {LEAST_COST:f} < {MOST_COST:g}"""


def _least(demand: Demand, interval_s: int) -> str:
    """PromQL: a lower bound of the rate, the largest of several windows.

    The window whose rate is used shows a step late. Ten and 30 s bound only fewer requests than ten seconds need, so
    that they do not hold up a load that falls.
    """
    (_irate, latest_s, at_once), (_rate, short_s, requests), (_long, long_s, _few) = _RATES[:3]
    latest = _per_second("irate", demand.offered, f"[{latest_s}s]")
    quick, short, long = (_per_second("rate", demand.offered, f"[{span_s}s]") for span_s in (_QUICK_S, short_s, long_s))
    # With two or three samples in five seconds, the counts are of an interval less.
    bounds = [
        f"{latest} - {_SURELY:g} * sqrt({latest} / {interval_s})",
        f"{quick} - {_SURELY:g} * sqrt({quick} / {max(_QUICK_S - interval_s, 1)})"
        f" unless {latest} >= {at_once / interval_s:.3g}",
        *(
            f"{rate} - {_SURELY:g} * sqrt({rate} / {span_s}) unless {short} >= {requests / short_s:g}"
            for rate, span_s in ((short, short_s), (long, long_s))
        ),
    ]
    named = (f'  label_replace({bound}, "of", "{number}", "", "")' for number, bound in enumerate(bounds))
    return "max(\n" + "\n  or\n".join(named) + "\n)"


def _matchers(labels: Mapping[str, str]) -> str:
    return f"{{{equal(labels)}}}"


def _of_pods(of: Metric, namespace: str, pods: str) -> str:
    """PromQL: the values of a workload's pods. pods: regular expression of their names."""
    return f"{of.latest}{{namespace={quoted(namespace)},pod=~{quoted(pods)}}}"


def _series(of: Metric, matchers: str) -> dict[str, str]:
    """PromQL for each part, without labels, by its name."""
    parts = ("busy", "counters", "offered", "answered", "learned", "learned_time", "cost")
    return {part: f"sum(namespace_workload:{demand_name(of.name)}:{part}{matchers})" for part in parts}


def _per_second(function: str, selectors: tuple[str, ...], window: str, ago_s: int = 0) -> str:
    offset = f" offset {ago_s}s" if ago_s else ""
    return f"sum({' or '.join(f'{function}({selector}{window}{offset})' for selector in selectors)})"


def _selector(options: Options, option: str) -> str:
    text = options.text(option).strip()
    if not _SELECTOR.fullmatch(text):
        raise options.error(
            option,
            f"is {shown(text)}, which is not a selector",
            'give the name of a counter and matchers, requests_total{code="200"} for instance; the rule takes the rate',
        )
    return text


def _prior(options: Options) -> float | None:
    if "prior_gpu_seconds" not in options:
        return None
    prior = as_number(options.raw("prior_gpu_seconds"))
    if prior is None or not LEAST_COST < prior < MOST_COST:
        raise options.error(
            "prior_gpu_seconds",
            f"is {shown(options.raw('prior_gpu_seconds'))}",
            f"set it to the GPU seconds of a request, more than {LEAST_COST:f} and less than {MOST_COST:g}",
        )
    return prior
