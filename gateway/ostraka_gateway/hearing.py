"""What a worker says, and what it is from then on. What its silence makes of it: silence.py. Pure."""

from ostraka_gateway.pace import Pace
from ostraka_gateway.worker import Worker, WorkerState
from ostraka_shared.messages import Beat, Ready, Started


def heard(worker: Worker, pace: Pace, now: float) -> None:
    """To be told of each of its messages, before what that says: it is alive, and the call that it was in has ended."""
    if worker.running_tokens:
        _end_call(worker, pace, now)
    worker.last_heard, worker.starved_s, worker.looked = now, 0.0, None
    if worker.state is WorkerState.SUSPECT:
        worker.state = WorkerState.READY


def _end_call(worker: Worker, pace: Pace, now: float) -> None:
    """The time since its STARTED is the call's."""
    worker.last_call = now
    pace.count(worker.running_tokens)
    worker.cost.observe(worker.running_tokens, now - worker.last_heard)
    worker.started, worker.running_tokens = (), 0


def ready(worker: Worker, message: Ready) -> None:
    worker.engine, worker.credit.tokens = message.engine, message.credit_tokens
    worker.batch_tokens = message.credit_tokens // 2
    worker.warm_tokens_per_s = message.tokens_per_s
    worker.cost.start(message.tokens_per_s)
    if worker.state is WorkerState.STARTING:
        worker.state = WorkerState.READY


def started(worker: Worker, message: Started) -> None:
    worker.started, worker.running_tokens = message.request_ids, message.tokens
    worker.others_tokens = message.others_tokens


def beat(worker: Worker, message: Beat) -> None:
    worker.beat = message
    worker.credit.tokens = message.credit_tokens or worker.credit.tokens


def draining(worker: Worker) -> None:
    """It said so, or is told to be."""
    worker.state = WorkerState.DRAINING
