# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule

from .actions.outcome import Outcome
from .argspecs import KUBE_AUTH
from .autoscaling.manifests import RuleOptions
from .autoscaling.rule_options import rule_options, url_without_login
from .autoscaling.spec import read_keys, read_specs
from .cluster.errors import ApiError, QueryError
from .cluster.http_getter import HttpGetter, has_credential, is_readable_by_others
from .cluster.kube import KubeClient
from .cluster.kubeconfig import check_kubeconfig, place_known
from .cluster.no_answer import lasting_failure, refused_connection
from .cluster.prometheus_client import PrometheusClient
from .cluster.rights import refused
from .cluster.transport import connect
from .errors import HopError, first_of_all
from .hops import Hop
from .kube.labels import is_inventory_id
from .secrets import masked_texts, redacted, without_login

# Threshold of new objects for Python's garbage collection.
GARBAGE_THRESHOLD = 100_000


class _OptionsFirst(AnsibleModule):  # type: ignore[misc]
    """Parses options before Ansible checks their types.

    Autoscalers: Ansible's check ends in a traceback for .inf and for a number instead of a mapping. It does not name
    the item of a list. The path of a kubeconfig is not a secret, and errors must contain it; a mapping is a secret.
    """

    argument_spec: dict[str, Any]
    refusal: HopError | None = None

    def _load_params(self) -> None:
        super()._load_params()
        # Ansible masks these in its log, and in the output of a module, including messages and tracebacks.
        self.no_log_values.update(masked_texts(self.params))
        given = self.params.get("kubeconfig")
        if isinstance(given, str) and not given.lstrip().startswith("{") and "\n" not in given:
            shown = {**self.argument_spec["kubeconfig"], "no_log": False}
            self.argument_spec = {**self.argument_spec, "kubeconfig": shown}
        self._read_autoscalers()

    def _read_autoscalers(self) -> None:
        given = self.params.get("autoscalers")
        if given is None or "options" not in self.argument_spec.get("autoscalers", {}):
            return
        try:
            if self.params.get("state") == "absent":
                keys = read_keys(given)
                self.params["autoscalers"] = [{"namespace": namespace, "name": name} for namespace, name in keys]
            else:
                read_specs(given)
        except HopError as err:
            self.refusal, self.params["autoscalers"] = err, []


class GpuModule:
    """The interface to Ansible: options in, one format of result out, and the only place that fails a module."""

    _refusal: HopError | None = None

    def __init__(self, argument_spec: dict[str, Any], **rules: Any) -> None:
        """`rules` are dependencies of options, as arguments of AnsibleModule."""
        self._started = time.monotonic()
        # A module needs everything that it reads until it ends. Repeated garbage collection took a sixth of a run.
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        self._argument_spec = {**KUBE_AUTH, **argument_spec}
        self._module = AnsibleK8SModule(
            argument_spec=self._argument_spec,
            module_class=_OptionsFirst,
            supports_check_mode=True,
            check_pyyaml=False,
            **rules,
        )
        self._refusal = self._module._module.refusal
        self.params: dict[str, Any] = self._module.params
        self.check_mode: bool = self._module.check_mode
        self.ansible_module: AnsibleModule = self._module._module
        self.outcome = Outcome()

    @contextmanager
    def boundary(self) -> Iterator[None]:
        """Ends the module with the outcome, or with the error and the changes made before it."""
        try:
            if self._refusal:
                raise self._refusal
            yield
            if self.outcome.errors:
                raise first_of_all([as_hop(err) for err in self.outcome.errors])
        except (HopError, ApiError, QueryError) as err:
            hop = self._as_hop(err)
            self._module.fail_json(
                msg=str(hop),
                hop=hop.hop,
                seen=hop.seen,
                fix=hop.fix,
                exception=traceback.format_exc(),
                **redacted(hop.result),
                **self._result(),
            )
        self._module.exit_json(**self._result())

    def _as_hop(self, err: HopError | ApiError | QueryError) -> HopError:
        """With the address of a server that does not answer."""
        if isinstance(err, ApiError):
            _context, server = place_known(self.params)
            return lasting_failure(err, server) or refused_connection(err, server) or as_hop(err)
        return as_hop(err)

    def kube_client(self) -> KubeClient:
        """A client; in check mode each write is a dry run on the server."""
        auth = {option: self.params[option] for option in KUBE_AUTH}
        check_kubeconfig(auth)
        return KubeClient(connect(auth), dry_run=self.check_mode)

    def prometheus_client(self, kube: KubeClient) -> PrometheusClient:
        """Prometheus at its address if set, otherwise through the API server."""
        given = self.params["prometheus"]
        if given["url"]:
            _refuse_readable_credential(given)
            getter = HttpGetter(given["url"], ca_cert=given["ca_cert"], bearer_token=given["bearer_token"])
            return PrometheusClient.at(given["url"], getter)
        place = {option: given[option] for option in ("namespace", "service", "port", "scheme", "path_prefix")}
        return PrometheusClient(kube.get_raw, **place)

    def rule_options(self) -> RuleOptions:
        given = self.params["prometheus"]
        names = ("rule_namespace", "rule_labels", "evaluation_interval", "selectors")
        options = {option: given[option] for option in names}
        options["rule_namespace"] = given["rule_namespace"] or given["namespace"]
        options["prometheus_url"] = url_without_login(given)
        return rule_options(options, "prometheus", self.inventory())

    def inventory(self) -> str:
        """Raises: HopError if the ID is not a valid label value."""
        return checked_inventory(self.params["inventory_id"])

    def _result(self) -> dict[str, Any]:
        outcome = self.outcome
        for warning in outcome.warnings:
            self._module.warn(warning)
        duration_s = round(time.monotonic() - self._started, 3)
        # Ansible needs more than a second for the diff of 1,000 objects, which is not shown without --diff.
        shown = {"diff": outcome.shown_diff()} if self._module._diff else {}
        invocation = {"module_args": redacted(given(self.params, self._argument_spec))}
        return {
            "changed": outcome.changed,
            "result": {**redacted(outcome.result), **outcome.public},
            **shown,
            "duration_s": duration_s,
            "invocation": invocation,
        }


def _refuse_readable_credential(prometheus: Mapping[str, Any]) -> None:
    """Raises: HopError before the first request, if the token or login would be sent unencrypted."""
    url = prometheus["url"]
    if (
        prometheus["plain_http"]
        or not has_credential(url, prometheus["bearer_token"])
        or not is_readable_by_others(url)
    ):
        return
    raise HopError(
        Hop.SCRAPE,
        seen=f"prometheus.url {without_login(url)} is plain HTTP, so its token or login would cross the network "
        "unencrypted. Nothing was sent or changed",
        fix="use https, with prometheus.ca_cert for a private CA; or set prometheus.plain_http to true",
    )


def given(options: Mapping[str, Any], argument_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Options for -vvv, without defaults in the entries of lists: for 1,000 autoscalers these are most of them."""
    return {
        option: _shown(value, argument_spec.get(option, {})) if isinstance(value, list) else value
        for option, value in options.items()
    }


def _shown(value: Any, spec: Mapping[str, Any]) -> Any:
    if value is None or "options" not in spec:
        return value
    if isinstance(value, list):
        return [_unlike_defaults(entry, spec["options"]) for entry in value]
    return _unlike_defaults(value, spec["options"])


def _unlike_defaults(entry: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        option: _shown(value, specs.get(option, {}))
        for option, value in entry.items()
        if value != specs.get(option, {}).get("default")
    }


def checked_inventory(inventory: str) -> str:
    """The ID of an inventory. Raises: HopError if it is not a valid label value."""
    if not is_inventory_id(inventory):
        raise HopError(
            Hop.SPEC,
            seen=f"inventory_id {inventory!r} cannot be the value of a label. Nothing was changed",
            fix="set kubegpu_inventory_id (inventory_id of the module) to at most 63 letters, digits, `-`, `_` and "
            "`.`, with a letter or digit at both ends",
        )
    return inventory


def as_hop(err: HopError | ApiError | QueryError) -> HopError:
    if isinstance(err, QueryError):
        fix = "query less, for example a shorter time; or raise query.max-samples and query.timeout of Prometheus"
        return HopError(Hop.SCRAPE, seen=f"Prometheus rejects a query: {err}", fix=fix)
    return err if isinstance(err, HopError) else _refused_request(err)


def _refused_request(err: ApiError) -> HopError:
    if err.status == 0:
        return HopError(
            Hop.API_SERVER, seen=str(err), fix="check that the address in the kubeconfig is right and reachable"
        )
    if err.status == 401:
        return HopError(Hop.API_SERVER, seen=str(err), fix="log in again: the credentials have expired or are wrong")
    if err.refused_user:
        return refused(err)
    return HopError(Hop.API_SERVER, seen=str(err), fix="correct the field in the message, then run again")
