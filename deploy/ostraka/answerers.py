"""Where `ostraka decide` gets its answers: from a model in this process, or from a running server. Order is kept."""

import http.client
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread, local
from typing import Protocol

from pydantic import ValidationError

from ostraka.addresses import read_url
from ostraka.decide_fates import Fate, as_outcome, error_line, read_fate
from ostraka_gateway.dialect import Asked, SystemOneDialect
from ostraka_gateway.served_model import ServedModel
from ostraka_gateway.tokenization import TokenizedRequest
from ostraka_shared.errors import OstrakaError
from ostraka_shared.messages import Work, count_tokens
from ostraka_worker.engine import Engine
from ostraka_worker.inference import BatchRun
from ostraka_worker.loading import load_verified

TRIES = 6
"""Of one request to a server that is busy, restarting or away: at least 15 s with the waits between."""
FIRST_WAIT_S = 0.5
"""Doubled each time, whatever shorter wait the server asks for: what keeps it busy may be our own other requests, which
come back as soon. 42 of 1,954 examples had no answer from a busy machine otherwise."""
RETRIED_STATUS = frozenset({408, 429, 502, 503, 504, 529})
WAIT_MS = re.compile("[0-9]{1,7}", re.ASCII)
"""Of `retry-after-ms`; something between may say what makes no sense."""
MOST_WAIT_S = 60.0
"""At a time, whatever is asked: a key's debt of tokens may take some minutes, but nobody here waits for hours."""
REQUEST_TIMEOUT_S = 120.0
WINDOW = 4
"""Requests begun for each one in flight: what is answered early waits here for its turn to be written."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`body` is what the server sends, answer or error."""

    body: bytes
    is_answer: bool


class Answerer(Protocol):
    def answer(self, bodies: Iterable[bytes]) -> Iterator[Outcome]:
        """One outcome for each body, in order."""


class LocalModel:
    """Reads requests together as a worker does. The weights are loaded when the first valid request needs them."""

    def __init__(self, model: ServedModel, threads: int, batch_tokens: int) -> None:
        self._model = model
        self._dialect = SystemOneDialect(model.name)
        self._threads = threads
        self._batch_tokens = batch_tokens
        self._engine: Engine | None = None

    def answer(self, bodies: Iterable[bytes]) -> Iterator[Outcome]:
        batch: list[Outcome | tuple[Asked, TokenizedRequest]] = []
        tokens = 0
        for body in bodies:
            prepared = self._prepare(body)
            size = 0 if isinstance(prepared, Outcome) else count_tokens(prepared[1].prefix, prepared[1].suffixes)
            if batch and tokens + size > self._batch_tokens:
                yield from self._run(batch)
                batch, tokens = [], 0
            batch.append(prepared)
            tokens += size
        yield from self._run(batch)

    def _prepare(self, body: bytes) -> Outcome | tuple[Asked, TokenizedRequest]:
        try:
            asked = self._dialect.validate(self._dialect.decode(body, None))
            return asked, self._model.tokenize(asked.request)
        except (ValidationError, OstrakaError) as bad:
            return self._refuse(bad)

    def _run(self, batch: list[Outcome | tuple[Asked, TokenizedRequest]]) -> Iterator[Outcome]:
        works = [
            Work("", 1, 1, one[1].prefix, one[1].suffixes, one[1].state_tokens)
            for one in batch
            if not isinstance(one, Outcome)
        ]
        run = BatchRun(works, self._batch_tokens)
        for call in run.calls:
            self._engine = self._engine or load_verified(self._model.folder, self._threads).engine
            run.run(self._engine, call)
        answers = iter(enumerate(run.answers()))
        for one in batch:
            if isinstance(one, Outcome):
                yield one
                continue
            place, p_yes = next(answers)
            failure = run.failures.get(place)
            yield self._refuse(failure) if failure else self._encode(*one, p_yes)

    def _encode(self, asked: Asked, tokens: TokenizedRequest, p_yes: tuple[float, ...]) -> Outcome:
        return Outcome(self._dialect.answer(asked, p_yes, tokens.input_tokens), is_answer=True)

    def _refuse(self, bad: Exception) -> Outcome:
        return Outcome(self._dialect.refuse(bad).body, is_answer=False)


class Server:
    """Keeps at most `concurrency` requests in flight, each on a connection of its own that is kept open."""

    def __init__(self, url: str, concurrency: int, key: str | None) -> None:
        self._parts = read_url(url)
        self._concurrency = concurrency
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._mine = local()

    def answer(self, bodies: Iterable[bytes]) -> Iterator[Outcome]:
        """Daemon threads, unlike a ThreadPoolExecutor's: the end, as by Ctrl-C, waits for no running request."""
        begun: deque[Future[Outcome]] = deque()
        asked: SimpleQueue[tuple[bytes, Future[Outcome]] | None] = SimpleQueue()
        threads = 0
        try:
            for body in bodies:
                begun.append(Future())
                asked.put((body, begun[-1]))
                if threads < self._concurrency:
                    threads += self._start_thread(asked, is_first=not threads)
                if len(begun) >= WINDOW * self._concurrency:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
            for _ in range(threads):
                asked.put(None)

    def _start_thread(self, asked: "SimpleQueue[tuple[bytes, Future[Outcome]] | None]", *, is_first: bool) -> bool:
        """False where the system has no more: fewer do."""
        try:
            Thread(target=self._ask_each, args=(asked,), daemon=True).start()
        except RuntimeError:
            if is_first:
                raise
            return False
        return True

    def _ask_each(self, asked: "SimpleQueue[tuple[bytes, Future[Outcome]] | None]") -> None:
        while one := asked.get():
            body, future = one
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._ask(body))
            except Exception as bad:  # noqa: BLE001  raised again where the outcome is waited for
                future.set_exception(bad)

    def _ask(self, body: bytes) -> Outcome:
        """Busy and away are tried again; any other answer is the outcome."""
        wait_s = FIRST_WAIT_S
        for tries_left in reversed(range(TRIES)):
            try:
                status, answer, asked_wait_s = self._post(body)
            except (OSError, http.client.HTTPException) as bad:
                status, answer, asked_wait_s = 0, _unreachable(self._parts.geturl(), bad), None
            if status and (status not in RETRIED_STATUS or not tries_left):
                line = as_outcome(status, answer)
                return Outcome(line, is_answer=status == 200 and read_fate(line) is Fate.ANSWERED)
            if tries_left:
                time.sleep(max(asked_wait_s or 0.0, wait_s))
                wait_s *= 2
        return Outcome(answer, is_answer=False)

    def _post(self, body: bytes) -> tuple[int, bytes, float | None]:
        """(status, body, seconds the server asks to wait). A failed connection is not used again."""
        connection: http.client.HTTPConnection | None = getattr(self._mine, "connection", None)
        connection = connection or self._connect()
        self._mine.connection = None
        connection.request("POST", f"{self._parts.path.rstrip('/')}/v1/systemone", body, self._headers)
        response = connection.getresponse()
        answer = response.read()
        wait_ms = response.headers.get("retry-after-ms", "")
        self._mine.connection = connection
        asked_wait_s = min(int(wait_ms) / 1000, MOST_WAIT_S) if WAIT_MS.fullmatch(wait_ms) else None
        return response.status, answer, asked_wait_s

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(host, port, timeout=REQUEST_TIMEOUT_S)


def _unreachable(url: str, bad: Exception) -> bytes:
    return error_line("unreachable", f"{url} does not answer ({bad or type(bad).__name__})")
