"""What a request costs the gateway between its tokens and its answer, in CPU time: filed, sent, answered; and refused.

python -m benchmarks.dispatcher
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable

from ostraka_gateway import hearing
from ostraka_gateway.answer_cache import AnswerCache
from ostraka_gateway.dispatcher import Dispatcher
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.roster import Roster
from ostraka_gateway.single_flight import Reply, SingleFlight
from ostraka_shared.errors import ServingError
from ostraka_shared.messages import Hello, Message, Ready, Result, Started, Work

WORKERS = 4
PREFIX = b"\1\0\0\0" * 100
REQUESTS = 3000


class Bench:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.roster = Roster("c", "f", self.loop.time())
        self.sent: list[tuple[bytes, Message]] = []
        metrics = Metrics()
        self.dispatcher = Dispatcher(self.roster, metrics, self._send, lambda _: None)
        self.single_flight = SingleFlight(self.roster, metrics, self.dispatcher, AnswerCache(0), 10**9)
        self.numbers = itertools.count()
        for number in range(WORKERS):
            hello = Hello("c", f"w{number}", 1, "f", "h", 1, ())
            worker = self.roster.join(hello.worker_id.encode(), hello, self.loop.time())
            hearing.ready(worker, Ready("none", 512, 1000.0))

    def _send(self, identity: bytes, message: Message) -> bool:
        self.sent.append((identity, message))
        return True

    def ask(self, deadline_s: float = 600.0) -> Awaitable[Reply]:
        number = next(self.numbers)
        question = (PREFIX, (number.to_bytes(4, "little") * 20,), 100)
        return self.single_flight.ask(f"r{number}", question, self.loop.time() + deadline_s)

    def answer(self) -> None:
        while self.sent:
            identity, message = self.sent.pop(0)
            worker = self.roster.find(identity)
            if worker and isinstance(message, Work):
                self.dispatcher.answered(worker, Result(message.request_id, message.attempt, (0.5,), 0.0, 0.0))
                self.dispatcher.pump()
                return


async def measure(queued: int) -> None:
    bench = Bench()
    tasks = [bench.loop.create_task(bench.ask()) for _ in range(queued)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    begun = time.process_time()
    for _ in range(REQUESTS):
        tasks.append(bench.loop.create_task(bench.ask()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        bench.answer()
        await asyncio.sleep(0)
    served_us = (time.process_time() - begun) / REQUESTS * 1e6
    refused_us = await measure_refusals(bench)
    print(f"{queued} waiting: {served_us:.0f} us a request, {refused_us:.0f} us a refusal", flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def measure_refusals(bench: Bench) -> float:
    for worker in bench.roster:  # a call of a second: speeds are known
        hearing.heard(worker, bench.roster.pace, bench.loop.time() - 1.0)
        hearing.started(worker, Started(("r",), 256))
        hearing.heard(worker, bench.roster.pace, bench.loop.time())
    begun, refused = time.process_time(), 0
    for _ in range(REQUESTS):
        try:
            await bench.ask(deadline_s=0.001)
        except ServingError:
            refused += 1
    assert refused == REQUESTS
    return (time.process_time() - begun) / REQUESTS * 1e6


if __name__ == "__main__":
    for waiting in (10, 2000):
        asyncio.run(measure(waiting))
