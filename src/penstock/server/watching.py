"""What others watch a server by: figures for Prometheus, collected when they are asked for.

Nothing here is on the way of a row: figures are what the service has counted anyway. Requests of HTTP are counted in
the one thread that answers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from penstock.server.service import Service
from penstock.server.session import Session

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Seconds of requests."""


class Requests:
    """How many requests there were, and how long they took. Bounded by the endpoints, methods and statuses that there
    are."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, list[float]] = {}
        """By path: the sum, and how many took at most as long as each of the buckets, and all."""

    def add(self, method: str, path: str, status: int, seconds: float) -> None:
        known = method if method in ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS") else "other"
        self.counts[known, path, status] += 1
        found = self.seconds.setdefault(path, [0.0] * (len(_BUCKETS) + 2))
        found[0] += seconds
        for i, bound in enumerate(_BUCKETS, 1):
            found[i] += seconds <= bound
        found[-1] += 1


class _Collector:
    """One look at the service, as one user may see it."""

    def __init__(self, service: Service, session: Session, requests: Requests) -> None:
        self._service, self._session, self._requests = service, session, requests

    def collect(self) -> Iterator[Metric]:
        yield from self._server()
        yield from self._streams()
        yield from self._queries()
        yield from self._subscriptions()
        yield from self._http()

    def _server(self) -> Iterator[Metric]:
        health = self._service.health()
        yield InfoMetricFamily("penstock_build", "The version that runs", {"version": health.version})
        yield GaugeMetricFamily("penstock_ready", "1 if the server takes requests", float(health.ready))
        sessions = GaugeMetricFamily("penstock_sessions", "Clients by protocol", labels=["protocol"])
        for protocol, count in Counter(s.protocol for s in self._service.sessions(self._session)).items():
            sessions.add_metric([protocol], count)
        yield sessions

    def _streams(self) -> Iterator[Metric]:
        given = CounterMetricFamily("penstock_stream_rows", "Rows that a stream was given", labels=["stream"])
        late = CounterMetricFamily("penstock_stream_late_rows", "Rows that came too late", labels=["stream"])
        apart = CounterMetricFamily("penstock_stream_apart_rows", "Rows that did not fit", labels=["stream"])
        progress = GaugeMetricFamily(
            "penstock_stream_progress", "Up to where a stream is complete, in ticks", labels=["stream"]
        )
        for stream in self._service.streams(self._session):
            given.add_metric([stream.name], stream.given)
            late.add_metric([stream.name], stream.late)
            apart.add_metric([stream.name], stream.apart)
            if stream.progress is not None:
                progress.add_metric([stream.name], stream.progress)
        yield from (given, late, apart, progress)

    def _queries(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("penstock_queries", "Queries by status", labels=["status"])
        results = CounterMetricFamily("penstock_query_results", "Results that a query has given", labels=["query"])
        kept = GaugeMetricFamily("penstock_query_retained_results", "Results that are retained", labels=["query"])
        failures = CounterMetricFamily(
            "penstock_query_failures", "Values that became NULL because computing them failed", labels=["query"]
        )
        latency = GaugeMetricFamily(
            "penstock_query_latency_seconds", "Latency of the newest results", labels=["query", "quantile"]
        )
        found = self._service.queries(self._session)
        for status, count in Counter(query.status for query in found).items():
            states.add_metric([status], count)
        for query in found:
            if query.status == "stopped":
                continue
            results.add_metric([query.name], query.next)
            kept.add_metric([query.name], query.next - query.first)
            failures.add_metric([query.name], query.failures)
            for key, quantile in (("p50", "0.5"), ("p99", "0.99")):
                if (value := query.latency.get(key)) is not None:
                    latency.add_metric([query.name, quantile], value)
        yield from (states, results, kept, failures, latency)

    def _subscriptions(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "penstock_subscription_lag", "Results that are there and not confirmed", labels=["subscription", "query"]
        )
        gone = GaugeMetricFamily(
            "penstock_subscription_gone", "Of these, results that are not retained", labels=["subscription", "query"]
        )
        for each in self._service.subscriptions(self._session):
            if each.lag is not None and each.gone is not None:
                lag.add_metric([each.name, each.query], each.lag)
                gone.add_metric([each.name, each.query], each.gone)
        yield from (lag, gone)

    def _http(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("penstock_http_requests", "Requests of HTTP", labels=["method", "path", "status"])
        for (method, path, status), count in list(self._requests.counts.items()):
            counts.add_metric([method, path, str(status)], count)
        seconds = HistogramMetricFamily("penstock_http_request_seconds", "Their time, until the end", labels=["path"])
        for path, (total, *below) in list(self._requests.seconds.items()):
            bounds = [*map(str, _BUCKETS), "+Inf"]
            seconds.add_metric([path], list(zip(bounds, below, strict=True)), total)
        yield from (counts, seconds)


def exposition(service: Service, session: Session, requests: Requests) -> bytes:
    """What ``/metrics`` says to this user."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(service, session, requests))
    if session.admin:
        ProcessCollector(registry=registry)  # processor time, memory, open files
    return generate_latest(registry)
