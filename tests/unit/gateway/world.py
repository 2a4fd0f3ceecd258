"""A dispatcher and those who ask it on a loop of their own, before workers that only hold what they are sent."""

import zlib

from ostraka_gateway import hearing
from ostraka_gateway.answer_cache import AnswerCache
from ostraka_gateway.dispatcher import Dispatcher
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.roster import Roster
from ostraka_gateway.single_flight import SingleFlight
from ostraka_gateway.worker import WorkerState
from ostraka_shared.messages import Cancel, Failed, Hello, Ready, Result, Started, Work
from tests.clocks import FakeTimeLoop

CREDIT = 100
LIMIT = 1000


def tokens(count, of="a"):
    """Each request's own, so that none shares another's answer."""
    return zlib.crc32(of.encode()).to_bytes(4, "little") * count


def question(name, count, prompts):
    return b"", tuple(tokens(count, f"{name} {number}") for number in range(prompts)), 0


def p_yes_of(suffixes):
    return tuple(zlib.crc32(suffix) / 2**32 for suffix in suffixes)


class World:
    """Time moves only when told to."""

    def __init__(self):
        self.loop = FakeTimeLoop()
        self.roster = Roster("c", "f", 0.0)
        self.metrics = Metrics()
        self.sent = []
        self.unreachable = set()
        self.dispatcher = Dispatcher(
            self.roster, self.metrics, self._send, lambda worker: self.lose(worker, "unreachable")
        )
        self.answers = AnswerCache(0)
        self.single_flight = SingleFlight(self.roster, self.metrics, self.dispatcher, self.answers, LIMIT)
        self.parts = self.dispatcher._table._parts
        self.tasks = {}

    def _send(self, identity, message):
        if identity in self.unreachable:
            return False
        self.sent.append((identity.decode(), message))
        return True

    def join(self, name, credit=CREDIT):
        worker = self.roster.join(name.encode(), Hello("c", name, 1, "f", "h", 1, ()), self.loop.time())
        hearing.ready(worker, Ready("fake 1", credit, 350.0))
        self.call(self.dispatcher.pump)
        return worker

    def lose(self, worker, reason="exit"):
        self.roster.remove(worker, self.loop.time())
        self.dispatcher.take_back(worker, reason)
        self.dispatcher.pump()

    def call(self, function, *args, **options):
        """On the loop, as the cluster's callbacks are."""
        self.loop.call_soon(lambda: function(*args, **options))
        self.loop.settle()

    def ask(self, name, count=10, deadline_s=9.0, prompts=1, as_name=None):
        """`as_name`: the same to the last token as that one asked."""
        asked = question(as_name or name, count, prompts)
        self.tasks[name] = self.loop.create_task(self.single_flight.ask(name, asked, self.loop.time() + deadline_s))
        self.loop.settle()
        return self.tasks[name]

    def started(self, worker, *names):
        hearing.started(worker, Started(names, 10))

    def answer(self, worker, name, attempt=1, p_yes=(0.5,), inference_ms=2.0):
        self.call(self.dispatcher.answered, worker, Result(name, attempt, p_yes, 1.0, inference_ms))

    def fail(self, worker, name, code="engine_failed", attempt=1):
        self.call(self.dispatcher.failed, worker, Failed(name, attempt, code, "why"))

    def sent_to(self, worker, kind=Work):
        """Of each message of this kind, what it is about."""
        sent = [message for name, message in self.sent if name == worker.identity.decode()]
        return [(message.request_id, message.attempt) for message in sent if isinstance(message, kind)]

    def close(self):
        for task in self.tasks.values():
            task.cancel()
        self.loop.settle()
        for task in self.tasks.values():
            task.cancelled() or task.exception()
        self.loop.close()


def is_empty(world):
    line = world.dispatcher.line
    return (line.tokens, line.count, world.single_flight.in_flight_requests) == (0, 0, 0)


def late(world):
    return world.metrics.late_results._value.get()


def withdrawn_from(world, worker):
    return world.sent_to(worker, Cancel)


def refused(world, name, error, **options):
    task = world.ask(name, **options)
    assert task.done()
    assert isinstance(task.exception(), error)
    return task.exception()


def busy_for(world, worker, tokens, seconds):
    """A call that was measured just now."""
    worker.last_heard = world.loop.time() - seconds
    worker.running_tokens = tokens
    hearing.heard(worker, world.roster.pace, world.loop.time())


def suspect(world, worker):
    worker.state = WorkerState.SUSPECT
    world.call(world.dispatcher.suspected, worker)
