"""Steady load on one server, and one fault after the other."""

import asyncio
import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.faults.asking import Asked, SteadyLoad, ask_for_failure
from benchmarks.faults.injecting import Injector, Order
from benchmarks.faults.outcomes import Row, Window, full_since, summarize
from benchmarks.faults.serving import Watch
from tests.cluster import Cluster

QUIET_S = 2.0
"""Of load without a fault before each and after it."""
RECOVERY_S = 30.0
POLL_S = 0.02
EXIT_CODE = "exit code"
GATEWAY = "gateway"
REDISPATCHED = "ostraka_redispatched_requests_total"


@dataclass(frozen=True, slots=True)
class Case:
    """A fault of the table: orders one after the other, each once all is well again, and requests made for it.
    `is_with_large`: meanwhile large requests are asked, which take memory."""

    name: str
    orders: tuple[Order, ...] = ()
    asked: tuple[Asked, ...] = ()
    is_with_large: bool = False
    ends_server: bool = False

    @property
    def ends_gateways(self) -> bool:
        return any(GATEWAY in order.targets for order in self.orders)


REAL = (
    Case("worker killed in a call, 3 times", (Order("kill", ("w0",)), Order("kill", ("w1",)), Order("kill", ("w0",)))),
    Case("all workers killed at once", (Order("kill", ("w0", "w1")),)),
    Case("one killed, then who took over", (Order("kill", ("w0", "w1"), gap_s=0.02),) * 3),
    Case("worker stopped for 1 s", (Order("stop", ("w1",), 1.0),)),
    Case("worker hangs", (Order("hang", ("w0",), 30.0),)),
    Case("worker at a fifth of its speed, 3 s", (Order("slow", ("w1",), 3.0),)),
    Case("worker without memory", (Order("oom", ("w0",), 10.0),), is_with_large=True),
    Case("link cut 4 times a second, 1.5 s", (Order("cut", ("w1",), 1.5),)),
    Case("worker told to leave (SIGTERM)", (Order("term", ("w0",)),)),
    Case("zygote killed, then a worker", (Order("kill", ("zygote",), is_in_call=False), Order("kill", ("w1",)))),
    Case(
        "zygote stopped, then a worker killed", (Order("halt", ("zygote",), is_in_call=False), Order("kill", ("w1",)))
    ),
    Case("gateway killed", (Order("kill", (GATEWAY,), is_in_call=False),)),
    Case("gateway hangs", (Order("hang", (GATEWAY,), 30.0, is_in_call=False),)),
)
DRAIN = Case("server told to end (SIGTERM)", ends_server=True)
FAKE = (
    Case("a call that fails, 10 times", asked=(ask_for_failure("<fail>", "engine_failed"),) * 10),
    Case("a call that answers NaN, 10 times", asked=(ask_for_failure("<nan>", "engine_failed"),) * 10),
    Case("a request that kills its workers", asked=(ask_for_failure("<die>", "poisoned_request"),)),
)


class FaultRun:
    """`workers` is how many all are. Lives for one server."""

    def __init__(self, cluster: Cluster, workers: int, load: SteadyLoad, large: Sequence[Asked]) -> None:
        self._cluster = cluster
        self._workers = workers
        self._injector = Injector(cluster.url)
        self._watch = Watch(cluster.url)
        self._load = load
        self._large = large
        self._windows: list[tuple[float, Window, float]] = []

    async def run(self, cases: Sequence[Case]) -> list[Row]:
        """A fault that ends the server is to be the last."""
        try:
            for case in cases:
                print(f"  {case.name} ...", flush=True)
                await self._run(case)
            await self._load.stop()
        finally:
            await self.close()
        return [self._summarize(*each) for each in self._windows]

    async def close(self) -> None:
        self._injector.close()
        await self._watch.close()

    async def inject(self, case: Case) -> list[str]:
        """Once all is well, until all is well again. What was done, by order."""
        await self._wait_full(asyncio.get_running_loop().time())
        asking = asyncio.create_task(self._ask_large()) if case.is_with_large else None
        notes = [await self._inject(order) for order in case.orders]
        if asking:
            await asking
        return notes

    async def _run(self, case: Case) -> None:
        loop = asyncio.get_running_loop()
        await self._wait_full(loop.time())
        from_ = loop.time()
        redispatched = await self._watch.metric(REDISPATCHED)
        await asyncio.sleep(QUIET_S)
        begun = loop.time()
        notes = await self.inject(case)
        for asked in case.asked:
            await self._load.ask(asked, loop.time())
        if case.ends_server:
            notes.append(await self._end_server())
        injected = loop.time()
        if not case.ends_server:
            await self._wait_full(injected)
            await asyncio.sleep(QUIET_S)
        now = await self._watch.metric(REDISPATCHED)
        # A gateway that was killed meanwhile counts from 0.
        count = int(now - redispatched if now >= redispatched else now)
        self._windows.append((from_, Window(case.name, begun, injected, count, "; ".join(notes)), loop.time()))

    async def _inject(self, order: Order) -> str:
        said = await self._injector.inject(order)
        await self._wait_full(asyncio.get_running_loop().time())
        return said

    async def _ask_large(self) -> None:
        for asked in self._large:
            await self._load.ask(asked, asyncio.get_running_loop().time())

    async def _end_server(self) -> str:
        """Who is not let in any more is not counted; the others are waited for."""
        self._load.clients.is_leaving = True
        self._cluster.process.send_signal(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        code = await loop.run_in_executor(None, self._cluster.process.wait)
        await self._load.stop()
        return f"{EXIT_CODE} {code}"

    async def _wait_full(self, since: float) -> None:
        """Until all workers are ready, as seen after `since`; or until that has taken too long for a benchmark."""
        loop = asyncio.get_running_loop()
        while loop.time() < since + RECOVERY_S:
            samples = [sample for sample in self._watch.samples[-2:] if sample.at > since]
            if full_since(samples, self._workers) is not None:
                return
            await asyncio.sleep(POLL_S)

    def _summarize(self, from_: float, window: Window, to: float) -> Row:
        outcomes = [each for each in self._load.outcomes if from_ <= each.due < to]
        samples = [sample for sample in self._watch.samples if from_ <= sample.at < to]
        for each in outcomes:
            if each.detail:
                print(
                    f"  {window.name}: {each.kind} after {each.latency_s:.2f} s, {each.retries} retries: {each.detail}"
                )
        row = summarize(window, outcomes, samples, self._workers)
        return replace(row, full_after_s=math.nan) if window.note.startswith(EXIT_CODE) else row
