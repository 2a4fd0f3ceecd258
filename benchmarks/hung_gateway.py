"""How long clients wait when their gateway stands still: from its SIGSTOP to the first answer on a new connection.

    python -m benchmarks.hung_gateway --gateways 2 --times 5 --fault hang
    python -m benchmarks.hung_gateway --fault kill --zygote-stopped 0

The fake engine; a request a connection, one after the other's answer. Beside it two requests are in flight in the
gateway when it is hit: what became of them, and when. `kill` is SIGKILL instead. With `--zygote-stopped`, what
gateways are forked from is stopped so many seconds before that.
"""

import argparse
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psutil

from ostraka.running_cluster import RunningCluster
from tests.cluster import Asked, Cluster, running, wait_for
from tests.fake_model import make_fake_model

FAULTS = {"hang": signal.SIGSTOP, "kill": signal.SIGKILL}
BODY = {"model": "jev-latest", "state": "s", "questions": {"q": {"type": "noul", "instructions": "Is it so?"}}}
CONNECT_S = 30.0
RETRY_S = 0.05


def main() -> None:
    values = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        release = Path(folder) / "release"
        model = make_fake_model(Path(folder) / "model", stall_until=str(release), ms_per_token=0.03)
        with running(model.path, "--workers=2", f"--gateways={values.gateways}") as cluster:
            waits = []
            for _ in range(values.times):
                if values.zygote_stopped is not None:
                    stop_zygote(cluster, values.zygote_stopped)
                waits.append(hit(cluster, release, FAULTS[values.fault]))
    for name, seconds in zip(
        ("first answer", "longest answer", "in flight ended"), zip(*waits, strict=True), strict=True
    ):
        print(f"{name}: median {statistics.median(seconds):.2f} s, {min(seconds):.2f}..{max(seconds):.2f}")


def stop_zygote(cluster: Cluster, seconds: float) -> None:
    def named(name: str) -> list[psutil.Process]:
        return [child for child in psutil.Process(cluster.process.pid).children() if child.name() == name]

    wait_for(lambda: named("ostraka gspare"), "it has loaded", 60)
    named("ostraka gzygote")[0].suspend()
    time.sleep(seconds)


def hit(cluster: Cluster, release: Path, number: signal.Signals) -> tuple[float, float, float]:
    """Seconds until somebody new was answered, until all of those were who came within the next eight, and until those
    who were in flight had an answer or a closed connection."""
    release.unlink(missing_ok=True)
    name, pid = next(iter(RunningCluster(cluster.url).gateways().items()))
    stalled = [Asked(lambda: ask_of(cluster.url, pid, "<stall>")) for _ in range(2)]
    wait_for(lambda: sum(bool(w["running_tokens"]) for w in cluster.health()["workers"]) == 2, "both are in flight", 60)
    ends: list[float] = []
    watcher = threading.Thread(target=lambda: ends.append(until_done(stalled)))
    watcher.start()
    psutil.Process(pid).send_signal(number)
    begun = time.monotonic()
    release.touch()
    waited = []
    while time.monotonic() - begun < 8.0:
        asked = time.monotonic()
        answer(cluster.url, "x")
        waited.append((time.monotonic() - begun, time.monotonic() - asked))
    watcher.join()
    wait_for(lambda: RunningCluster(cluster.url).gateways().get(name, pid) != pid, "it is replaced")
    wait_for(lambda: is_whole(cluster.url), "all is as before")
    ended_s, fates = ends[0] - begun, [told(each) for each in stalled]
    print(f"{number.name}: {waited[0][0]:.2f} s; in flight: {fates} after {ended_s:.2f} s", flush=True)
    return waited[0][0], max(each for _, each in waited), ended_s


def ask_of(url: str, pid: int, state: str) -> httpx.Response:
    """On a connection that this gateway has accepted."""
    while True:
        with httpx.Client(base_url=url, timeout=CONNECT_S) as client, client.stream("GET", "/livez") as response:
            mine = response.extensions["network_stream"].get_extra_info("client_addr")
            response.read()
            if mine in {each.raddr for each in psutil.Process(pid).net_connections("tcp")}:
                return client.post("/v1/systemone", json=BODY | {"state": state})


def answer(url: str, state: str) -> None:
    """As a client that tries again."""
    while True:
        try:
            if httpx.post(f"{url}/v1/systemone", json=BODY | {"state": state}, timeout=CONNECT_S).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(RETRY_S)


def until_done(asked: list[Asked]) -> float:
    wait_for(lambda: all(each.is_done for each in asked), "they have ended", 60)
    return time.monotonic()


def told(asked: Asked) -> str:
    try:
        return str(asked.response().status_code)
    except httpx.TransportError as bad:
        return type(bad).__name__


def is_whole(url: str) -> bool:
    try:
        health = httpx.get(f"{url}/health").json()
    except httpx.TransportError:
        return False
    return all(each.get("ready_workers") == 2 for each in health["gateways"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--fault", choices=FAULTS, default="hang")
    parser.add_argument(
        "--zygote-stopped", type=float, metavar="SECONDS", help="for how long before; default: it is not"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
