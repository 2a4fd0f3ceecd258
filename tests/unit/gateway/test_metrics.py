import errno
import os
from dataclasses import replace

import pytest
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families

from ostraka_gateway import hearing
from ostraka_gateway.count_files import CountFiles
from ostraka_gateway.figures import GatewayFigures, describe_workers, merge
from ostraka_gateway.metrics import CONTENT_TYPE, Metrics
from ostraka_gateway.roster import Roster
from ostraka_shared.messages import Beat, Hello, Ready, Started


def figures(roster=None, **changed):
    found = GatewayFigures(
        "gateway",
        1,
        "ready",
        1,
        3,
        700,
        5,
        {} if roster is None else dict(roster.restarts),
        () if roster is None else describe_workers(roster),
    )
    return replace(found, **changed)


def scrape(metrics, roster=None):
    text = metrics.render(merge([figures(roster)])).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.fixture
def roster():
    return Roster("c", "f", 0.0)


@pytest.fixture
def metrics():
    return Metrics()


def join(roster, name, incarnation=1, now=0.0):
    worker = roster.join(f"{name}.{incarnation}".encode(), Hello("c", name, incarnation, "f", "h", 1, (0,)), now)
    hearing.ready(worker, Ready("fake 1", 512, 350.0))
    return worker


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where this process counts until the test ends."""
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    yield tmp_path
    values.close_all_multiprocess_files()


def test_gateways_that_count_in_one_folder_are_summed_and_a_successor_counts_on(folder):
    """No sum ever falls, though processes end: a rate over it would take that for a start from 0."""
    for name in ("gateway", "gateway1", "gateway1"):  # the last one has replaced the one before
        metrics = Metrics(CountFiles(folder, name))
        metrics.requests.labels("/v1/systemone", "200").inc()
        metrics.late_results.inc()
        metrics.observe({"parse": 0.001})
    found = scrape(metrics)
    assert found["ostraka_requests_total", ("route", "/v1/systemone"), ("status", "200")] == 3
    assert found["ostraka_late_results_total",] == 3
    assert found["ostraka_request_seconds_count", ("stage", "parse")] == 3
    assert found["ostraka_queued_tokens",] == 700


def test_files_of_counts_have_their_blocks_before_the_first_is_written(folder):
    """A page of a sparse file that cannot be had when it is written to is SIGBUS, the process's end."""
    Metrics(CountFiles(folder, "gateway"))
    files = list(folder.iterdir())
    assert {file.name for file in files} == {"counter_gateway.db", "histogram_gateway.db"}
    assert all(file.stat().st_blocks * 512 >= file.stat().st_size >= 1 << 20 for file in files)


def test_a_folder_that_is_deleted_costs_nothing_once_it_is_there_again(folder):
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")  # as /var/run is one
    folder = folder / "link" / "metrics"
    folder.mkdir()
    metrics = Metrics(CountFiles(folder, "gateway"))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    metrics.observe({"parse": 0.001})
    metrics.requests.labels("/v1/systemone", "200").inc()
    assert metrics.render(merge([figures()], []))
    metrics.count_again()
    metrics.requests.labels("/v1/systemone", "200").inc()
    found = scrape(metrics)
    assert found["ostraka_requests_total", ("route", "/v1/systemone"), ("status", "200")] == 2
    assert found["ostraka_request_seconds_count", ("stage", "parse")] == 1
    assert {file.name for file in folder.iterdir()} == {"counter_gateway.db", "histogram_gateway.db"}


def test_a_full_disk_costs_no_counts_and_they_are_there_once_it_has_room(folder, monkeypatch):
    metrics = Metrics(CountFiles(folder, "gateway"))
    metrics.late_results.inc()
    for file in folder.iterdir():
        file.unlink()
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            metrics.count_again()
    assert not list(folder.iterdir()), "an empty one would be taken for one that has its counts"
    metrics.late_results.inc()
    metrics.count_again()
    assert scrape(metrics)["ostraka_late_results_total",] == 2


def test_what_becomes_of_a_worker_is_seen_by_each_gateway_and_counted_once(folder):
    for name, exits in (("gateway", 3), ("gateway1", 2)):  # that one was away once
        metrics = Metrics(CountFiles(folder, name))
        metrics.recycled.inc()
        metrics.lost_workers.labels("exit").inc(exits)
    metrics.lost_workers.labels("silent").inc()
    found = scrape(metrics)
    assert found["ostraka_recycled_workers_total",] == 1
    assert found["ostraka_lost_workers_total", ("reason", "exit")] == 3
    assert found["ostraka_lost_workers_total", ("reason", "silent")] == 1


def test_gateways_that_do_not_answer_are_counted(metrics):
    text = metrics.render(merge([figures()], ["gateway1"])).decode()
    assert "ostraka_gateways 1.0" in text
    assert "ostraka_silent_gateways 1.0" in text


def test_how_many_workers_there_should_be_is_told_once_whoever_is_asked(metrics):
    told = [figures(wanted_workers=wanted) for wanted in (4, 4, None)]  # the last is of a version that does not say it
    texts = [metrics.render(merge(order)).decode().splitlines() for order in (told, told[::-1])]
    for text in texts:
        assert [line for line in text if line.startswith("ostraka_wanted_workers")] == ["ostraka_wanted_workers 4.0"]


def test_a_number_of_workers_that_nobody_has_said_is_not_told(metrics):
    assert ("ostraka_wanted_workers",) not in scrape(metrics)


def test_two_instances_do_not_share_a_registry():
    Metrics()
    assert scrape(Metrics())


def test_the_content_type_is_prometheus_text():
    assert CONTENT_TYPE.startswith("text/plain")


def test_events_are_counted(metrics):
    metrics.requests.labels("/v1/systemone", "200").inc()
    metrics.redispatched.labels("exit").inc()
    metrics.redispatched.labels("exit").inc()
    metrics.late_results.inc()
    metrics.dropped_frames.labels("garbage").inc()
    metrics.lost_workers.labels("silent").inc()
    metrics.observe({"parse": 0.001, "inference": 0.2})
    found = scrape(metrics)
    assert found["ostraka_requests_total", ("route", "/v1/systemone"), ("status", "200")] == 1
    assert found["ostraka_redispatched_requests_total", ("reason", "exit")] == 2
    assert found["ostraka_late_results_total",] == 1
    assert found["ostraka_dropped_frames_total", ("reason", "garbage")] == 1
    assert found["ostraka_lost_workers_total", ("reason", "silent")] == 1
    assert found["ostraka_request_seconds_count", ("stage", "parse")] == 1
    assert found["ostraka_request_seconds_sum", ("stage", "inference")] == pytest.approx(0.2)


def test_the_cluster_is_read_when_it_is_scraped(metrics, roster):
    assert ("ostraka_in_flight_tokens", ("worker", "w0")) not in scrape(metrics, roster)
    worker = join(roster, "w0")
    worker.hold("r", 30, 1)
    found = scrape(metrics, roster)
    assert found["ostraka_queued_requests",] == 3
    assert found["ostraka_queued_tokens",] == 700
    assert found["ostraka_in_flight_tokens", ("worker", "w0")] == 30
    assert found["ostraka_worker_state", ("state", "ready"), ("worker", "w0")] == 1
    assert found["ostraka_worker_state", ("state", "suspect"), ("worker", "w0")] == 0
    assert found["ostraka_worker_restarts_total", ("worker", "w0")] == 0
    assert ("ostraka_worker_rss_bytes", ("worker", "w0")) not in found
    worker.release("r")
    assert scrape(metrics, roster)["ostraka_in_flight_tokens", ("worker", "w0")] == 0


def test_a_workers_own_numbers_come_from_its_beat_and_its_calls(metrics, roster):
    worker = join(roster, "w0")
    worker.beat = Beat(1, 2, batches_done=40, batched_requests=5, dropped_frames=0, rss_bytes=123_456)
    hearing.started(worker, Started(("r",), 100))
    hearing.heard(worker, roster.pace, 0.1)
    found = scrape(metrics, roster)
    assert found["ostraka_worker_rss_bytes", ("worker", "w0")] == 123_456
    assert found["ostraka_worker_batches_total", ("worker", "w0")] == 40
    assert found["ostraka_worker_tokens_per_second", ("worker", "w0")] == pytest.approx(1000.0, rel=0.2)


def test_a_restart_continues_a_workers_series_instead_of_adding_one(metrics, roster):
    roster.remove(join(roster, "w0"), 1.0)
    join(roster, "w0", incarnation=2)
    found = scrape(metrics, roster)
    assert found["ostraka_worker_restarts_total", ("worker", "w0")] == 1
    assert len([key for key in found if key[0] == "ostraka_in_flight_tokens"]) == 1


def test_restarts_outlive_the_worker(metrics, roster):
    roster.remove(join(roster, "w0"), 1.0)
    assert scrape(metrics, roster)["ostraka_worker_restarts_total", ("worker", "w0")] == 0


def test_two_of_one_name_are_one_series(metrics, roster):
    """As while a worker's replacement is coming."""
    for incarnation, rss_bytes in ((2, 200), (1, 100)):
        join(roster, "w0", incarnation).beat = Beat(0, 0, 0, 0, 0, rss_bytes)
    assert scrape(metrics, roster)["ostraka_worker_rss_bytes", ("worker", "w0")] == 200
