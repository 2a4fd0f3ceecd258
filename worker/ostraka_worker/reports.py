"""What the gateways are told of the work: which call begins, what came of a request, and that the loop moves.

Each gateway hears of its own requests alone, but of every call: what it has asked for waits for those of the others.
"""

import psutil

from ostraka_shared.errors import OstrakaError
from ostraka_shared.messages import Beat, Failed, Result, Started
from ostraka_worker.fair_line import Waiting
from ostraka_worker.inference import Call
from ostraka_worker.registration import Registrations
from ostraka_worker.running import Running
from ostraka_worker.schedule import Schedule
from ostraka_worker.sharing import Sharing
from ostraka_worker.snapshots import Snapshots

DEFAULT_HEARTBEAT_S = 0.5
"""Until a gateway's WELCOME says otherwise."""


class Reports:
    def __init__(
        self, registrations: Registrations, schedule: Schedule, snapshots: Snapshots, sharing: Sharing
    ) -> None:
        self._registrations = registrations
        self._schedule = schedule
        self._snapshots = snapshots
        self._sharing = sharing
        self._process = psutil.Process()
        self._next_beat = 0.0
        self._batches_done = self._batched_requests = 0
        self.heartbeat_s = DEFAULT_HEARTBEAT_S

    def started(self, running: Running, call: Call) -> None:
        tokens = running.run.tokens(call)
        for gateway, registration in enumerate(self._registrations):
            registration.say(Started(running.request_ids(call, gateway), tokens, self._others_tokens(gateway)))

    def ended(self, running: Running, call: Call, seconds: float, now: float) -> None:
        """To be told after the call's answers. An only gateway knows by them; several, by the next call's STARTED,
        where one follows at once."""
        gateways = len(self._registrations)
        self._sharing.used(seconds, running.tokens_by(call, gateways), now)
        if gateways > 1 and self._schedule.is_idle:
            for gateway, registration in enumerate(self._registrations):
                registration.say(Started((), 0, self._others_tokens(gateway)))

    def answered(self, running: Running) -> None:
        answers = running.run.answers()
        for place, waiting in self._schedule.finish(running):
            if failure := running.run.failures.get(place):
                self.failed(waiting, failure)
                continue
            queue_ms = (running.begun - waiting.received) * 1000
            work = waiting.work
            self._registrations[waiting.gateway].say(
                Result(work.request_id, work.attempt, answers[place], queue_ms, running.inference_s * 1000)
            )
        self._batches_done += 1
        self._batched_requests += len(running.batch) if len(running.batch) > 1 else 0

    def failed(self, waiting: Waiting, error: OstrakaError) -> None:
        work = waiting.work
        self._registrations[waiting.gateway].say(Failed(work.request_id, work.attempt, error.code, str(error)))

    def until_beat_s(self, now: float) -> float:
        return max(0.0, self._next_beat - now)

    def beat_if_due(self, now: float, dropped_frames: int) -> None:
        if now < self._next_beat:
            return
        self._next_beat = now + self.heartbeat_s
        rss_bytes = self._process.memory_info().rss
        for gateway, registration in enumerate(self._registrations):
            registration.say(
                Beat(
                    queued_requests=len(self._schedule.waiting),
                    queued_tokens=self._schedule.waiting.queued_tokens,
                    batches_done=self._batches_done,
                    batched_requests=self._batched_requests,
                    dropped_frames=dropped_frames,
                    rss_bytes=rss_bytes,
                    **self._snapshots.report(),
                    credit_tokens=self._sharing.credit_of(gateway, now),
                    free_share=self._sharing.free_share(gateway, now),
                )
            )

    def _others_tokens(self, gateway: int) -> int:
        return self._schedule.held_tokens(but_for=gateway) if len(self._registrations) > 1 else 0
