"""What Prometheus sees. Counters and histograms are told of events; the cluster's state is read when it is scraped."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from ostraka_gateway.roster import Roster, Worker, WorkerState

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "ostraka_requests", "HTTP requests answered", ["route", "status"], registry=self._registry
        )
        self.key_requests = Counter(
            "ostraka_key_requests", "The same by the API key's name", ["key", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "ostraka_request_seconds",
            "Time of a decision by stage",
            ["stage"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self.redispatched = Counter(
            "ostraka_redispatched_requests", "Requests sent to another worker", ["reason"], registry=self._registry
        )
        self.late_results = Counter(
            "ostraka_late_results", "Results nobody waited for any more", registry=self._registry
        )
        self.duplicates = Counter(
            "ostraka_duplicate_results",
            "Second answers to what two workers were given, against the first, bit for bit",
            ["compared"],
            registry=self._registry,
        )
        self.shared = Counter(
            "ostraka_shared_requests",
            "Requests that waited for the answer to an identical one",
            registry=self._registry,
        )
        self.cached = Counter(
            "ostraka_cached_answers", "Requests answered from the answer cache", registry=self._registry
        )
        self.rollout = Counter(
            "ostraka_rollout_requests",
            "Requests that the next generation's model was given too, or instead",
            ["outcome"],
            registry=self._registry,
        )
        self.dropped_frames = Counter(
            "ostraka_dropped_frames",
            "Frames that were no message of a known worker",
            ["reason"],
            registry=self._registry,
        )
        self.recycled = Counter(
            "ostraka_recycled_workers", "Workers replaced before they died", registry=self._registry
        )
        self.lost_workers = Counter(
            "ostraka_lost_workers", "Workers that left without saying so", ["reason"], registry=self._registry
        )

    def watch(self, roster: Roster, queued: Callable[[], tuple[int, int]]) -> None:
        """`queued()` gives the waiting requests and their tokens."""
        self._registry.register(ClusterCollector(roster, queued))

    def observe(self, seconds: dict[str, float]) -> None:
        """One answered decision's stages."""
        for stage, spent in seconds.items():
            self.seconds.labels(stage).observe(spent)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class ClusterCollector(Collector):
    """Workers are labelled by worker id, which outlives restarts, so that series do not multiply."""

    def __init__(self, roster: Roster, queued: Callable[[], tuple[int, int]]) -> None:
        self._roster = roster
        self._queued = queued

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        requests, tokens = self._queued()
        yield GaugeMetricFamily("ostraka_queued_requests", "Requests waiting in this gateway", requests)
        yield GaugeMetricFamily("ostraka_queued_tokens", "Their tokens", tokens)
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
        restarts = CounterMetricFamily("ostraka_worker_restarts", "Restarts seen", labels=["worker"])
        # While a worker's replacement is coming there are two of one name: the newer one is the series'.
        for worker in {each.hello.worker_id: each for each in sorted(self._roster, key=_age)}.values():
            name = worker.hello.worker_id
            in_flight.add_metric([name], worker.outstanding_tokens)
            rates.add_metric([name], worker.tokens_per_s)
            for term, seconds in zip(("call", "token", "token2"), worker.cost.terms_s, strict=True):
                costs.add_metric([name, term], seconds)
            for state in WorkerState:
                states.add_metric([name, state.value], int(worker.state is state))
            if worker.beat:
                dropped.add_metric([name], worker.beat.dropped_frames)
                queued.add_metric([name], worker.beat.queued_tokens)
                rss.add_metric([name], worker.beat.rss_bytes)
                batches.add_metric([name], worker.beat.batches_done)
        for name, count in self._roster.restarts.items():
            restarts.add_metric([name], count)
        yield from (in_flight, queued, states, rates, costs, rss, batches, dropped, restarts)


def _age(worker: Worker) -> int:
    return worker.hello.incarnation
