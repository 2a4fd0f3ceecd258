"""What is sent next, and to whom: of those that wait the most urgent, to the worker that will be done first. Pure."""

from ostraka_gateway.parts import Instruction, Part, Parts, Request, Send
from ostraka_gateway.roster import Roster
from ostraka_gateway.routing import candidates
from ostraka_gateway.splitting import Reader, Reading, cut, plan_shares
from ostraka_gateway.waiting_line import RETURNED_S, WaitingLine
from ostraka_gateway.worker import Worker

ALONE = -1
"""The lane of those that a worker reads while it holds nothing else."""


class Sending:
    def __init__(self, roster: Roster, parts: Parts) -> None:
        self._roster = roster
        self._parts = parts
        self._turn = 0
        self.line: WaitingLine[Part] = WaitingLine()

    def wait(self, part: Part) -> None:
        self.line.push(part, part.request.due_at, self._lane(part))

    def wait_again(self, part: Part) -> None:
        """Before all that was never sent."""
        self.line.push(part, part.request.due_at - RETURNED_S, self._lane(part))

    def hasten(self, request: Request, deadline: float) -> None:
        """Someone else waits for it as well."""
        request.deadline = max(request.deadline, deadline)
        if deadline >= request.due_at:
            return
        request.due_at = deadline
        for part in request.parts:
            if part.ticket and not part.attempt:
                self.wait(part)

    def pump(self, now: float) -> list[Instruction]:
        """What can be sent, to be called whenever room may have come. Nothing overtakes a head that waits for room; one
        that waits for a long request's end, and all workers read one, lets the shorter ones pass."""
        sent: list[Instruction] = []
        while sending := self._next(now):
            sent += sending
        return sent

    def _next(self, now: float) -> list[Instruction]:
        ready = self._roster.ready_workers()
        for part in self._heads():
            able = candidates((worker for worker in ready if _may_take(worker, part)), part.tokens, part.request.state)
            if able:
                return self._send(part, able, now)
            if not (ready and all(_is_behind_a_long_one(worker, part) for worker in ready)):
                return []
        return []

    def _heads(self) -> list[Part]:
        """Less those that nobody awaits since this very turn of the event loop, be they thousands: in the next one they
        are dropped."""
        heads = self.line.heads()
        while left := [part for part in heads if not part.request.is_awaited]:
            for part in left:
                self.line.remove(part)
            heads = self.line.heads()
        return heads

    def _send(self, part: Part, able: list[Worker], now: float) -> list[Instruction]:
        self.line.remove(part)
        parts = [part]
        if len(able) > 1 and len(part.places) > 1 and part.attempt == 0 and not part.request.runs_alone:
            parts = self._split(part, able, now)
        sent: list[Instruction] = []
        for each, worker in zip(parts, able, strict=False):
            self._turn += 1
            work = each.next_attempt(now)
            state = each.request.state
            tokens = worker.tokens_to_read(each.tokens, state)
            worker.hold(each.part_id, tokens, self._turn, is_alone=each.request.runs_alone)
            if state:
                worker.keep(state)
            each.holders[worker] = work.attempt
            sent.append(Send(worker, each, work))
        return sent

    def _split(self, part: Part, able: list[Worker], now: float) -> list[Part]:
        """By the order of their bytes, so that prompts that begin alike stay together."""
        request = part.request
        readers = [Reader(worker.predicted_s, worker.speed) for worker in able]
        reading = Reading.of(request.prefix_tokens, sum(request.added))
        shares = plan_shares(reading, readers, request.deadline - now, is_quiet=not self.line.count)
        if len(shares) == 1:
            return [part]
        order = sorted(part.places, key=request.suffixes.__getitem__)
        groups = cut([request.added[place] for place in order], shares)
        if len(groups) == 1:
            return [part]
        by = []
        for number, group in enumerate(groups):
            places = sorted(order[index] for index in group)
            tokens = request.prefix_tokens + sum(request.added[place] for place in places)
            by.append((f"{request.request_id}/{number}", places, tokens))
        return self._parts.replace(part, by)

    def _lane(self, part: Part) -> int:
        """One for each size of those that need more than room in a worker's credit."""
        if part.request.runs_alone:
            return ALONE
        return min((worker.credit.size_of(part.tokens) for worker in self._roster.ready_workers()), default=0)


def _may_take(worker: Worker, part: Part) -> bool:
    return worker not in part.holders and not (part.request.runs_alone and worker.held)


def _is_behind_a_long_one(worker: Worker, part: Part) -> bool:
    if part.request.runs_alone:
        return bool(worker.credit.long_sizes)
    return worker.credit.has_one_as_long(worker.tokens_to_read(part.tokens, part.request.state))
