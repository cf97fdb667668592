"""What a server counts, under the published names.

Labels are bounded: routes go by their pattern, environments and experiments by name up to a number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ...base.leasing import BOUNDS_MS, CallTally
from ..board.call_counts import (
    CallCounts,
    CallKind,
    bounded_rpc_method,
    endpoint_of,
    summed_series,
    summed_timings,
)
from ..board.shared_memory import Board
from . import quantiles

_SECONDS = (
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
)
_MAX_NAMES = 200  # environments and experiments with a label of their own; the rest is "other"
_OF_TENANTS = ("env_name", "envName", "experiment")  # labels whose values are words of theirs


@dataclass(frozen=True)
class Load:
    """What a gateway has to do, and has done since it started."""

    alive: int
    calls: int
    errors: int
    """Answers of 500 and above, also those of environments whose code raised."""


class Metrics:
    """The counters of one process; those of the data path are on the board, where data workers count as well."""

    def __init__(self, board: Board | None = None) -> None:
        if board is None:
            board = Board(1)
            board.close()  # its memory stays: no other process shall open it
        self._board = board
        self._relayed = CallCounts(board.columns[0])
        self._alive = self._faults = 0
        self._registry = registry = CollectorRegistry()
        registry.register(_Relayed(board))
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        took, did, ms = ["method", "endpoint"], ["operation", "env_name", "status"], BOUNDS_MS
        self._requests = counter("aenv_api_requests", "Requests", [*took, "status"])
        self._duration = histogram("aenv_api_request_duration_ms", "Time to answer, in ms", took, buckets=ms)
        self._instances = counter("aenv_api_instance_operations", "Things done with instances", did)
        self._services = counter("aenv_api_service_operations", "Things done with services", did)
        self._active = gauge("aenv_api_active_instances", "Instances that live", ["envName", "experiment"])
        told = "Where the time of a create goes"
        self._stages = histogram("aenv_instance_create_stage_seconds", told, ["stage"], buckets=_SECONDS)
        told = "Time from the request for an instance until it runs"
        self._creates = histogram("aenv_instance_create_seconds", told, buckets=_SECONDS)
        self._expired = counter("auto_cleanup_success", "Instances whose time was over")
        self._not_ended = counter("auto_cleanup_failure", "Instances that could not be ended")
        self._home = gauge("aenv_home_bytes", "What the home folder takes on its disk", ["part"])
        self._free = gauge("aenv_home_free_bytes", "What is left on the home folder's disk")
        self._names: set[str] = set()
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._took: dict[str, Histogram] = {}

    def answered(self, method: str, endpoint: str, status: int, seconds: float) -> None:
        known = self._answered.get((method, endpoint, status))
        if known is None:  # finding them takes longer than counting
            found = self._requests.labels(method, endpoint, status), self._duration.labels(method, endpoint)
            known = self._answered[method, endpoint, status] = found
        known[0].inc()
        known[1].observe(1e3 * seconds)
        self._faults += status >= 500

    def relayed(self, method: str, path: str, rpc_method: str, status: int, seconds: float) -> None:
        """A request on the data path; `rpc_method` is what its header claims."""
        kind = CallKind(method, endpoint_of(path), bounded_rpc_method(rpc_method))
        self._relayed.count(kind, status, seconds)

    def told(self, tally: CallTally) -> None:
        """Requests that did not pass here, as a client on this host has counted them."""
        for (method, endpoint, rpc_method, status), row in tally.rows.items():
            self._relayed.add(CallKind(method, endpoint, rpc_method), status, row.counts, row.total_ms)

    def did(self, operation: str, environment: str, status: str = "success") -> None:
        self._instances.labels(operation, self._bounded(environment), status).inc()

    def did_to_service(self, operation: str, environment: str, status: str = "success") -> None:
        self._services.labels(operation, self._bounded(environment), status).inc()

    def created(self, environment: str, seconds: float) -> None:
        """An instance runs, so long after it was asked for."""
        self.did("create", environment)
        self._creates.observe(seconds)

    def live(self, environment: str, experiment: str, change: int) -> None:
        """An instance has begun (1) or ended (-1) to live."""
        self._active.labels(self._bounded(environment), self._bounded(experiment)).inc(change)
        self._alive += change

    def took(self, stage: str, seconds: float) -> None:
        """A stage of a create: queue, admit, engine, record."""
        known = self._took.get(stage)
        if known is None:
            known = self._took[stage] = self._stages.labels(stage)
        known.observe(seconds)

    def swept(self, *, ended: bool) -> None:
        (self._expired if ended else self._not_ended).inc()

    def home_takes(self, sizes: Mapping[str, int], free_bytes: int) -> None:
        """How large the parts of the home folder were when they were last measured."""
        for part, size in sizes.items():
            self._home.labels(part).set(size)
        self._free.set(free_bytes)

    def load(self) -> Load:
        calls = summed_series(self._board)
        faults = sum(count for (_, status), count in calls.items() if status >= 500)
        return Load(self._alive, sum(calls.values()), self._faults + faults)

    def figures(self) -> dict[str, Any]:
        """What pages show of all this. Times are in seconds: the median, p90 and p99."""
        load = self.load()
        calls = [timing.buckets for timing in summed_timings(self._board).values()]
        milliseconds = quantiles.of_buckets(BOUNDS_MS, [sum(counts) for counts in zip(*calls, strict=True)])
        return {
            "calls": load.calls,
            "errors": load.errors,
            "create": quantiles.of_histograms(self._creates).get(""),
            "call": milliseconds and [value / 1e3 for value in milliseconds],
            "stages": quantiles.of_histograms(self._stages),
        }

    def text(self, *, names: bool = True) -> bytes:
        """All of them, in the text form of Prometheus; without `names`, environments and experiments together."""
        return generate_latest(self._registry if names else _Together(self._registry))

    def _bounded(self, name: str) -> str:
        if name in self._names or len(self._names) < _MAX_NAMES:
            self._names.add(name)
            return name
        return "other"


class _Relayed(Collector):
    """Requests on the data path, of all processes of this gateway."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        labels = ["method", "endpoint", "rpc_method", "status"]
        requests = CounterMetricFamily("aenv_api_mcp_requests", "Requests on the data path", labels=labels)
        for (kind, status), count in summed_series(self._board).items():
            requests.add_metric([*kind, str(status)], count)
        yield requests
        what = "Time to the end of a reply on the data path, in ms"
        bounds = [*map(floatToGoString, BOUNDS_MS), "+Inf"]
        durations = HistogramMetricFamily("aenv_api_mcp_request_duration_ms", what, labels=labels[:2])
        for names, timing in summed_timings(self._board).items():
            buckets = list(zip(bounds, map(float, accumulate(timing.buckets)), strict=True))
            durations.add_metric(names, buckets, sum_value=timing.milliseconds)
        yield durations


class _Together(CollectorRegistry):
    """The same counters, summed over what tenants have named."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._whole = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._whole.collect():
            sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
            for sample in metric.samples:
                labels = tuple((key, "" if key in _OF_TENANTS else value) for key, value in sample.labels.items())
                place, value = (sample.name, labels), sample.value
                is_moment = sample.name.endswith("_created")
                sums[place] = min(sums.get(place, value), value) if is_moment else sums.get(place, 0.0) + value
            summed = Metric(metric.name, metric.documentation, metric.type)
            for (name, labels), value in sums.items():
                summed.add_sample(name, dict(labels), value)
            yield summed
