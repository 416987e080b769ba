# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A Lease of coordination.k8s.io: while one run holds it, no other run makes the same change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

from ..errors import HopError
from ..hops import Hop
from ..kube.objects import Manifest
from .errors import ApiError
from .kube import LEASES, KubeClient

# Seconds for which a killed run blocks others. Renewed often enough to tolerate two lost requests.
DURATION_S = 60
RENEWED_EACH_S = 15


class Lease:
    """One Lease in one run.

    holder: unique name of this run.
    now:    the time of the API server, because clocks of two controllers may differ by more than a Lease lasts.
    what:   description of what it protects.
    """

    def __init__(
        self,
        kube: KubeClient,
        metadata: Mapping[str, object],
        holder: str,
        now: Callable[[], datetime],
        what: str,
        *,
        renewed_each_s: float = RENEWED_EACH_S,
    ) -> None:
        self._kube, self._metadata, self._holder, self._now, self._what = kube, metadata, holder, now, what
        self._renewed_each_s = renewed_each_s
        self._live: Manifest = {}
        self._is_lost = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises: HopError at the beginning, if another run holds it; and at the end, if another run acquired it."""
        self._acquire()
        ended = Event()
        renewal = Thread(target=self._renew_until, args=(ended,), daemon=True)
        renewal.start()
        try:
            yield
        finally:
            ended.set()
            renewal.join()
            # A remaining Lease expires.
            with suppress(ApiError, HopError):
                self._kube.delete(LEASES, self._live, self._is_mine)
        if self._is_lost:
            raise HopError(
                Hop.API_SERVER,
                seen=f"{self._what} was changed by another run at the same time: {self._title} was lost meanwhile",
                fix="run again, one run at a time",
            )

    def refuse_if_held(self) -> None:
        """Raises: HopError if another run holds it."""
        live, now = self._read(), self._now()
        if live is not None and _is_held(live, now):
            raise self._refusal(live)

    def _acquire(self) -> None:
        live, now = self._read(), self._now()
        if live is not None and _is_held(live, now):
            raise self._refusal(live)
        wanted = self._manifest(now, now)
        try:
            if live is None:
                self._live = self._kube.create(LEASES, wanted)
            else:
                version = {"resourceVersion": live["metadata"]["resourceVersion"]}
                self._live = self._kube.replace(LEASES, {**wanted, "metadata": {**wanted["metadata"], **version}})
        except ApiError as err:
            if err.status == 409 and (live := self._read()) is not None:
                raise self._refusal(live) from err
            raise

    def _renew_until(self, ended: Event) -> None:
        """A Lease that cannot be renewed for a while may still be held; it is lost once another run holds it."""
        while not ended.wait(self._renewed_each_s):
            try:
                live = self._read()
                if live is None or not self._is_mine(live):
                    self._is_lost = True
                    return
                renewed = {**live["spec"], "renewTime": _text(self._now())}
                self._live = self._kube.replace(LEASES, {**live, "spec": renewed})
            except ApiError:
                continue

    def _read(self) -> Manifest | None:
        return self._kube.get(LEASES, str(self._metadata["name"]), str(self._metadata["namespace"]))

    def _is_mine(self, live: Manifest) -> bool:
        return (live.get("spec") or {}).get("holderIdentity") == self._holder

    def _manifest(self, acquired: datetime, renewed: datetime) -> Manifest:
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": DURATION_S,
            "acquireTime": _text(acquired),
            "renewTime": _text(renewed),
        }
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": dict(self._metadata), "spec": spec}

    @property
    def _title(self) -> str:
        return f"Lease {self._metadata['namespace']}/{self._metadata['name']}"

    def _refusal(self, live: Manifest) -> HopError:
        spec = live.get("spec") or {}
        until = _time(spec.get("renewTime")) + timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
        return HopError(
            Hop.API_SERVER,
            seen=f"{self._what} is being changed by {spec.get('holderIdentity')} since {spec.get('acquireTime')} "
            f"({self._title}). Nothing was changed",
            fix=f"wait for that run, then run again; if it was killed, its Lease ends at {_text(until)} unless it is "
            "renewed",
        )


def _is_held(live: Manifest, now: datetime) -> bool:
    spec = live.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds") or 0
    return bool(spec.get("holderIdentity")) and now < _time(spec.get("renewTime")) + timedelta(seconds=seconds)


def _text(at: datetime) -> str:
    """In the API server's time format for Leases."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(text: str | None) -> datetime:
    """A time long ago for a Lease that was never renewed."""
    return datetime.fromisoformat(text) if text else datetime.fromtimestamp(0, UTC)
