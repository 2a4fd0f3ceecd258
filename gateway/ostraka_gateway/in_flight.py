"""The in-flight table: every accepted request is here until its one answer or error. What happened comes in, what is to
be done comes out; it knows no socket and no clock.

    add ──► waiting ──send──► held ──RESULT──► answered ─► all parts: Done
              ▲  a request of many prompts is   │ FAILED ─────────────► Done, with the error
              │  cut into parts when it is sent │
              ├── FAILED, undone ◄──────────────┤ (its deadline was an earlier one than the request's is now)
              ├── worker lost ◄─────────────────┤ (the part alone; running in 2 that crashed: poison)
              └── worker suspect ◄──────────────┘ (a copy: the first answer wins, the other is withdrawn, or compared)

A part waits again only while no worker that can be relied on has it: it is read twice at once where one of two is
suspect, or was. Deciding has no side effect, so that is harmless; answering twice cannot happen.
"""

from ostraka_gateway.parts import (
    MAX_BLAME,
    Done,
    Instruction,
    Late,
    Outcome,
    Part,
    Parts,
    Redispatched,
    Request,
    Withdraw,
    is_dangerous,
    may_have_run,
    was_running,
)
from ostraka_gateway.roster import Roster
from ostraka_gateway.sending import Sending
from ostraka_gateway.worker import Worker
from ostraka_shared import errors
from ostraka_shared.death_notes import CRASHED, KILLED
from ostraka_shared.messages import Cancel, Failed, Result

CRASH_REASONS = frozenset({CRASHED, "silent"})
"""Of a worker's loss. Any other is no fault of what it held: it was killed, said BYE, joined anew, or was cut off."""
SUSPECT = "suspect"


class InFlight:
    def __init__(self, roster: Roster) -> None:
        self._parts = Parts()
        self.sending = Sending(roster, self._parts)

    def add(self, request: Request) -> None:
        request.answers = [0.0] * len(request.suffixes)
        self.sending.wait(self._parts.add(request, request.request_id, range(len(request.suffixes)), request.tokens))

    def trusted(self, worker: Worker) -> None:
        """No longer suspect: copies that still wait are not needed."""
        for part in self._parts.held_by(worker):
            self.sending.line.remove(part)

    def answered(self, worker: Worker, result: Result) -> list[Instruction]:
        part = self._parts.release(worker, result.request_id, result.attempt)
        if part is None:
            return [Late(result.request_id)]
        if not part.is_wanted:
            self._parts.forget_if_free(part)
            return [Late(result.request_id, None if part.answer is None else part.answer == result.p_yes)]
        if len(result.p_yes) != len(part.places):
            return self._finish(part.request, errors.EngineFailed("the worker answered another number of prompts"))
        request = part.request
        part.answer = result.p_yes
        request.inference_ms = max(request.inference_ms, result.inference_ms)
        for place, value in zip(part.places, result.p_yes, strict=True):
            request.answers[place] = value
        if all(each.answer is not None for each in request.parts):
            return self._finish(request, tuple(request.answers))
        return self._withdraw(part)

    def failed(self, worker: Worker, failed: Failed) -> list[Instruction]:
        part = self._parts.release(worker, failed.request_id, failed.attempt)
        if part is None:
            return [Late(failed.request_id)]
        if not part.is_wanted:
            self._parts.forget_if_free(part)
            return [] if failed.code == errors.Cancelled.code else [Late(failed.request_id)]
        is_late = failed.code == errors.DeadlineExceeded.code
        has_more_time = part.sent_deadlines[failed.attempt] < part.request.deadline  # who came to wait for it since
        if failed.code == errors.Cancelled.code or (is_late and has_more_time):
            if part.is_missed:  # else another copy is with somebody, or on its way
                self.sending.wait_again(part)
            return []
        error = errors.DeadlineExceeded(failed.message) if is_late else errors.EngineFailed(failed.message)
        return self._finish(part.request, error)

    def lost(self, worker: Worker, reason: str) -> list[Instruction]:
        """What it held waits again, in its old order, before all that came later."""
        held = self._parts.held_by(worker)
        was_ended = reason in CRASH_REASONS or reason == KILLED
        ended = {part.request for part in held if was_ended and part.is_wanted and was_running(worker, part)}
        for request in ended:
            request.crashes += reason in CRASH_REASONS
            request.kills += reason == KILLED
        for part in held:
            del part.holders[worker]
            if reason in CRASH_REASONS:
                part.request.runs_alone |= may_have_run(worker, part)
        done: list[Instruction] = []
        for request in ended:
            if request.blame >= MAX_BLAME:
                error = f"{request.crashes + request.kills} workers died while running request {request.request_id}"
                done += self._finish(request, errors.PoisonedRequest(error))
        return done + self._redispatch(held, reason)

    def suspected(self, worker: Worker) -> list[Instruction]:
        """Others get copies of what it holds; but for what stands still in two workers, and may be the reason why."""
        held = [part for part in self._parts.held_by(worker) if part.is_wanted]
        for part in held:
            part.request.runs_alone |= may_have_run(worker, part)
        return self._redispatch([part for part in held if not is_dangerous(part.request)], SUSPECT)

    def drop(self, request: Request) -> list[Instruction]:
        """Nobody waits for it any more, and so nobody is to be told."""
        return self._end(request, errors.ClientLeft("nobody waits for the answer any more"))

    def _redispatch(self, parts: list[Part], reason: str) -> list[Instruction]:
        again: list[Instruction] = []
        for part in parts:
            if not part.is_wanted:
                self._parts.forget_if_free(part)
            elif part.is_missed:
                self.sending.wait_again(part)
                again.append(Redispatched(part, reason))
        return again

    def _finish(self, request: Request, outcome: Outcome) -> list[Instruction]:
        return [Done(request), *self._end(request, outcome)]

    def _end(self, request: Request, outcome: Outcome) -> list[Instruction]:
        """Its parts are let go: they know it too, and only a garbage collection would find such a pair, long after."""
        request.outcome = outcome
        parts, request.parts = request.parts, []
        return [withdrawn for part in parts for withdrawn in self._withdraw(part)]

    def _withdraw(self, part: Part) -> list[Instruction]:
        self.sending.line.remove(part)
        self._parts.forget_if_free(part)
        return [Withdraw(worker, Cancel(part.part_id, attempt)) for worker, attempt in part.holders.items()]
