"""Two gateways before two workers: what is asked of one is answered whatever becomes of the other."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ostraka.gateway_watch import ASK_S
from ostraka.running_cluster import RunningCluster
from ostraka_gateway.control import REPORT_S
from tests.cluster import Asked, Cluster, running, wait_for
from tests.fake_model import make_fake_model
from tests.faults.loads import BODY, under_load

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("gateways")
    model = make_fake_model(folder / "model", stall_until=str(folder / "release"), ms_per_token=0.05)
    with running(model.path, "--workers=2", "--gateways=2", f"--run-dir={folder / 'run'}") as cluster:
        cluster.release = folder / "release"
        yield cluster
        assert cluster.stop(signal.SIGTERM) == 0


@contextmanager
def connected(cluster: Cluster, name: str) -> Iterator[httpx.Client]:
    """A client whose one connection that gateway has accepted."""
    with ExitStack() as clients:
        while True:
            client = clients.enter_context(httpx.Client(base_url=cluster.url, timeout=30))
            with client.stream("GET", "/livez") as response:
                mine = response.extensions["network_stream"].get_extra_info("client_addr")
                response.read()
            if mine in {each.raddr for each in cluster.gateways()[name].net_connections("tcp")}:
                yield client
                return


def wait_reported(client: httpx.Client) -> None:
    """Until that gateway has told its supervisor what is so now: its loop had a turn after the next report was due."""
    due = time.monotonic() + REPORT_S

    def has_turned() -> bool:
        asked = time.monotonic()
        return client.get("/livez").status_code == 200 and asked > due

    wait_for(has_turned, "a turn that began after the report was due")
    assert client.get("/livez").status_code == 200, "and ended"


@pytest.mark.parametrize("keeps", [True, False])
def test_a_gateway_that_is_drained_loses_nothing_and_is_replaced(pair: Cluster, keeps: bool) -> None:
    before = pair.gateways()["gateway"]
    with under_load(pair, keeps=keeps) as load:
        before.send_signal(signal.SIGTERM)
        wait_for(lambda: not before.is_running() and "gateway" in pair.gateways(), "it is replaced")
    assert load.errors == []
    assert {status for status, _ in load.answers} == {200}
    assert len(load.answers) == 4, "each client's answer was always the same"


def test_health_and_metrics_are_of_all_gateways_whoever_is_asked_and_outlive_one_that_hangs(pair: Cluster) -> None:
    with connected(pair, "gateway") as first, connected(pair, "gateway1") as second:
        wait_for(lambda: is_complete(first.get("/health").json()), "each gateway has both workers")
        before = answered(first)
        for client in (first, second, second):
            assert client.post("/v1/systemone", json=BODY).status_code == 200
        for client in (first, second):
            wait_for(lambda client=client: answered(client) == before + 3, "all three are counted")
        for health in (first.get("/health").json(), second.get("/health").json()):
            assert [each["gateway"] for each in health["gateways"]] == ["gateway", "gateway1"]
            assert {each["pid"] for each in health["gateways"]} == {each.pid for each in pair.gateways().values()}
            assert [worker["worker"] for worker in health["workers"]] == ["w0", "w1"]
            assert {each["gateway"]: each["pid"] for each in health["gateways"]} == RunningCluster(pair.url).gateways()
        killed = pair.gateways()["gateway1"]
        wait_reported(second)
        killed.suspend()
        assert {"gateway": "gateway1", "state": "silent"} in first.get("/health").json()["gateways"]
        assert first.get("/readyz").json() == {"status": "ready", "ready_workers": 2}
        assert pair.wait_event("gateway_silent", child="gateway1")["in_flight_requests"] == 0
        wait_for(lambda: is_complete(first.get("/health").json()), "it is replaced")
        assert not killed.is_running()
        assert answered(first) == before + 3


def test_a_gateway_that_only_stood_still_for_a_moment_keeps_its_place_and_its_requests(pair: Cluster) -> None:
    stopped = pair.gateways()["gateway"]
    with connected(pair, "gateway") as mine:
        stopped.suspend()
        resumed = time.monotonic() + 2 * ASK_S
        wait_for(lambda: time.monotonic() > resumed, "its supervisor looks at it closely")
        asked = Asked(partial(mine.post, "/v1/systemone", json=BODY))
        stopped.resume()
        assert asked.response().status_code == 200
        assert pair.gateways()["gateway"] == stopped
        assert not pair.event("gateway_silent", child="gateway")


def answered(client: httpx.Client) -> float:
    samples = (
        each for family in text_string_to_metric_families(client.get("/metrics").text) for each in family.samples
    )
    wanted = {"route": "/v1/systemone", "status": "200"}
    return sum(each.value for each in samples if each.name == "ostraka_requests_total" and each.labels == wanted)


def is_complete(health: dict[str, Any]) -> bool:
    return [each.get("ready_workers") for each in health["gateways"]] == [2, 2]


def test_a_killed_gateway_costs_its_own_clients_only_and_is_replaced(pair: Cluster) -> None:
    before, broken = pair.gateways()["gateway1"], pair.metric("ostraka_broken_requests_total")
    with connected(pair, "gateway") as mine, connected(pair, "gateway1") as theirs:
        stall = {**BODY, "state": "<stall>"}
        stalled, lost = (Asked(partial(client.post, "/v1/systemone", json=stall)) for client in (mine, theirs))
        wait_for(lambda: pair.health()["in_flight_requests"] == 2, "both are in")
        wait_for(lambda: any(worker["running_tokens"] for worker in pair.health()["workers"]), "a worker runs one")
        with connected(pair, "gateway1") as another:
            wait_reported(another)
        before.kill()
        with pytest.raises(httpx.TransportError):
            lost.response()
        assert pair.wait_event("requests_broken", child="gateway1", requests=1)
        wait_for(lambda: pair.gateways().get("gateway1", before) != before, "it is replaced")
        pair.release.touch()
        assert stalled.response().status_code == 200
    with connected(pair, "gateway1") as again:
        assert again.post("/v1/systemone", json=BODY).status_code == 200
    wait_for(
        lambda: pair.metric("ostraka_broken_requests_total") == broken + 1, "its successor has counted what was broken"
    )


@pytest.mark.parametrize("fault", ["none", "spare killed", "spare stopped", "zygote killed", "zygote stopped"])
def test_a_killed_gateway_is_forked_again_whatever_became_of_what_it_is_forked_from(pair: Cluster, fault: str) -> None:
    """And killed once more, as soon as it is there."""
    wait_for(lambda: pair.gateways().keys() == {"gateway", "gateway1"} and pair.named("gspare"), "all is well")
    (spare,), (zygote,) = pair.named("gspare"), pair.named("gzygote")
    if fault == "spare killed":
        spare.kill()
    elif fault == "spare stopped":
        spare.suspend()
    elif fault == "zygote killed":
        zygote.kill()
    elif fault == "zygote stopped":
        zygote.suspend()
    for _ in range(2):
        before = pair.gateways()["gateway1"]
        before.kill()
        wait_for(lambda before=before: pair.gateways().get("gateway1", before) != before, "it is replaced")
    with connected(pair, "gateway1") as again:
        assert again.post("/v1/systemone", json=BODY).status_code == 200
    assert "ostraka_gateway.zygote" in pair.gateways()["gateway1"].cmdline()
    assert not pair.event("not_forked")
    if fault == "spare stopped":
        assert pair.named("gzygote") == [zygote], "it is not to blame"
        spare.resume()
        wait_for(lambda: not spare.is_running(), "it was given up, and ends")
