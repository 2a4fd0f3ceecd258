"""A server of its own for a benchmark, and what it says of itself while that runs."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from benchmarks.faults.outcomes import Sample
from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.progress import for_stderr
from tests.cluster import Cluster, running
from tests.fake_model import make_fake_model

FAKE_MS_PER_TOKEN = 0.03
"""With the fake model's one token a byte, about 15 ms for each of our requests."""
FAKE = "fake"
NOT_READY = "--not-ready-s=2"
"""As behind a load balancer: kept connections have their last answer before the socket is shut."""
SAMPLE_S = 0.05
SAY_S = 1.0


@contextmanager
def served(model: str, workers: int, *flags: str) -> Iterator[Cluster]:
    """`ostraka serve` with the embedded model in that precision, or with the fake engine."""
    with tempfile.TemporaryDirectory() as folder:
        if model == FAKE:
            path = make_fake_model(Path(folder) / "model", ms_per_token=FAKE_MS_PER_TOKEN).path
        else:
            path = ensure_embedded(Path("~/.cache/ostraka").expanduser(), model, for_stderr()).path
        with running(path, f"--workers={workers}", NOT_READY, *flags) as cluster:
            yield cluster


class Watch:
    """Asks the server, twenty times a second, how many workers are ready."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=SAY_S, verify=False)  # noqa: S501  http
        self.samples: list[Sample] = []
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self._watching.cancel()
        await self._http.aclose()

    async def metric(self, name: str) -> float:
        """The sum of all its series; 0 where the server does not answer."""
        with suppress(httpx.TransportError):
            text = (await self._http.get("/metrics")).text
            return sum_up(text, name)
        return 0.0

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ready = 0
            with suppress(httpx.TransportError, ValueError, KeyError):
                ready = int((await self._http.get("/readyz")).json()["ready_workers"])
            self.samples.append(Sample(loop.time(), ready))
            await asyncio.sleep(SAMPLE_S)


def sum_up(text: str, name: str) -> float:
    """Of a metric in Prometheus' text form, over its labels."""
    lines = (line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
    return sum(float(line.rpartition(" ")[2]) for line in lines)
