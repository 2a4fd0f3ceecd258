"""What Prometheus sees. Counters and histograms are told of events; the cluster's state is read when it is scraped."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ostraka_gateway.count_files import CountFiles
from ostraka_gateway.figures import ClusterFigures
from ostraka_gateway.worker import WorkerState

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

RECYCLED, LOST = "ostraka_recycled_workers", "ostraka_lost_workers"


class Metrics:
    """`files`: of the folder where all gateways count; by default this one counts for itself."""

    def __init__(self, files: CountFiles | None = None) -> None:
        self._files = files
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        self.requests = counter("ostraka_requests", "HTTP requests answered", ["route", "status"])
        self.key_requests = counter("ostraka_key_requests", "The same by the API key's name", ["key", "status"])
        self.seconds = Histogram(
            "ostraka_request_seconds",
            "Time of a decision by stage",
            ["stage"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self.seconds.labels("total")  # its file is opened now, not by the first request
        self.redispatched = counter("ostraka_redispatched_requests", "Requests sent to another worker", ["reason"])
        self.broken = counter(
            "ostraka_broken_requests",
            "Requests that a gateway had begun and not answered when it ended, as it said last",
        )
        self.late_results = counter("ostraka_late_results", "Results nobody waited for any more")
        self.duplicates = counter(
            "ostraka_duplicate_results",
            "Second answers to what two workers were given, against the first, bit for bit",
            ["compared"],
        )
        self.shared = counter("ostraka_shared_requests", "Requests that waited for the answer to an identical one")
        self.cached = counter("ostraka_cached_answers", "Requests answered from the answer cache")
        self.rollout = counter(
            "ostraka_rollout_requests",
            "Requests that the next generation's model was given too, or instead",
            ["outcome"],
        )
        self.dropped_frames = counter(
            "ostraka_dropped_frames", "Frames that were no message of a known worker", ["reason"]
        )
        self.recycled = counter(RECYCLED, "Workers replaced before they died")
        self.lost_workers = counter(LOST, "Workers that left without saying so", ["reason"])

    def observe(self, seconds: dict[str, float]) -> None:
        """One answered decision's stages."""
        for stage, spent in seconds.items():
            self.seconds.labels(stage).observe(spent)

    def count_again(self) -> None:
        """In files, where those in which was counted are gone. Raises OSError."""
        if self._files:
            self._files.restore(lambda: self.broken.inc(0))

    def render(self, cluster: ClusterFigures) -> bytes:
        """The events of all gateways that count in the same folder, and the cluster as it is."""
        everything = CollectorRegistry()
        if self._files is None:
            everything.register(self._registry)
        else:
            everything.register(GatewaysCollector(self._files.folder))
        everything.register(ClusterCollector(cluster))
        return generate_latest(everything)


class GatewaysCollector(Collector):
    """What all gateways count in `folder`, added up; a worker's end, which each of them sees, as who saw most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        most = self._most()
        for metric in _merge(self._folder.glob("*.db")):
            if metric.name in most:
                metric.samples = list(most[metric.name].values())
            yield metric

    def _most(self) -> dict[str, dict[tuple[tuple[str, str], ...], Sample]]:
        """By the metric's name and the sample's labels."""
        most: dict[str, dict[tuple[tuple[str, str], ...], Sample]] = {RECYCLED: {}, LOST: {}}
        for file in self._folder.glob("counter_*.db"):  # one a gateway
            for metric in _merge([file]):
                for sample in metric.samples if metric.name in most else ():
                    labels = tuple(sorted(sample.labels.items()))
                    known = most[metric.name].get(labels, sample)
                    most[metric.name][labels] = max(known, sample, key=lambda each: each.value)
        return most


def _merge(files: Iterable[Path]) -> Iterable[Metric]:
    merged: Iterable[Metric] = MultiProcessCollector.merge(map(str, files))  # type: ignore[no-untyped-call]
    return merged


class ClusterCollector(Collector):
    """Workers are labelled by worker id, which outlives restarts, so that series do not multiply."""

    def __init__(self, cluster: ClusterFigures) -> None:
        self._cluster = cluster

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        cluster = self._cluster
        yield GaugeMetricFamily("ostraka_gateways", "Gateways that answer for themselves", len(cluster.gateways))
        yield GaugeMetricFamily("ostraka_silent_gateways", "Gateways whose figures are missing", len(cluster.silent))
        yield GaugeMetricFamily("ostraka_queued_requests", "Requests waiting in the gateways", cluster.queued_requests)
        yield GaugeMetricFamily("ostraka_queued_tokens", "Their tokens", cluster.queued_tokens)
        degraded = GaugeMetricFamily("ostraka_degraded", "1 for what is wrong and costs no answer", labels=["reason"])
        for reason in cluster.degraded:
            degraded.add_metric([reason], 1)
        yield degraded
        # None, where nobody has said it: no sample, so that no alert compares with a number that means nothing.
        yield GaugeMetricFamily("ostraka_wanted_workers", "Workers there should be", cluster.wanted_workers)
        restarts = CounterMetricFamily("ostraka_worker_restarts", "Restarts seen", labels=["worker"])
        for name, count in cluster.restarts.items():
            restarts.add_metric([name], count)
        yield restarts
        yield from self._of_workers()

    def _of_workers(self) -> Iterable[Metric]:
        in_flight = GaugeMetricFamily("ostraka_in_flight_tokens", "Tokens a worker holds", labels=["worker"])
        queued = GaugeMetricFamily("ostraka_worker_queued_tokens", "Of these, waiting in the worker", labels=["worker"])
        states = GaugeMetricFamily("ostraka_worker_state", "1 for a worker's state", labels=["worker", "state"])
        rates = GaugeMetricFamily("ostraka_worker_tokens_per_second", "Measured, smoothed", labels=["worker"])
        costs = GaugeMetricFamily(
            "ostraka_worker_call_cost_seconds", "Fitted: of a call, a token, a token squared", labels=["worker", "term"]
        )
        rss = GaugeMetricFamily("ostraka_worker_rss_bytes", "Resident memory", labels=["worker"])
        batches = CounterMetricFamily("ostraka_worker_batches", "Batches answered", labels=["worker"])
        dropped = CounterMetricFamily("ostraka_worker_dropped_frames", "Frames it could not read", labels=["worker"])
        for worker in self._cluster.workers:
            name = worker.worker
            in_flight.add_metric([name], worker.in_flight_tokens)
            rates.add_metric([name], worker.tokens_per_s)
            for term, seconds in zip(("call", "token", "token2"), worker.terms_s, strict=True):
                costs.add_metric([name, term], seconds)
            for state in WorkerState:
                states.add_metric([name, state.value], int(worker.state is state))
            if worker.has_beat:
                dropped.add_metric([name], worker.dropped_frames)
                queued.add_metric([name], worker.queued_tokens)
                rss.add_metric([name], worker.rss_bytes)
                batches.add_metric([name], worker.batches_done)
        yield from (in_flight, queued, states, rates, costs, rss, batches, dropped)
