"""`ostraka decide`: answers one request file without a server, in the bytes the server would send."""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from ostraka_gateway.dialect import SystemOneDialect
from ostraka_gateway.problems import Problem
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.errors import ConfigError, RequestError
from ostraka_shared.messages import Work
from ostraka_shared.model_folder import ModelFolder, open_folder
from ostraka_worker.build.builder import DEFAULT_PRECISION, PRECISIONS, ensure_embedded
from ostraka_worker.build.progress import for_stderr
from ostraka_worker.config import DEFAULT_BATCH_TOKENS
from ostraka_worker.engines import load_engine
from ostraka_worker.inference import BatchRun


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", metavar="REQUEST.json", help="the body of a POST /v1/systemone; - reads stdin")
    parser.add_argument("--output", metavar="FILE", help="a new file for the answer (default: stdout)")
    parser.add_argument("--model", metavar="DIR", help="a model folder (default: the embedded model)")
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION, help="of the embedded model")
    parser.add_argument("--cache-dir", default="~/.cache/ostraka", help="where downloads and built models are kept")
    parser.add_argument("--threads", type=int, default=1, help="cores to use: more answer sooner")


def run(values: argparse.Namespace) -> int:
    """A request that is refused: the server's error body on stderr, exit code 1."""
    output = Path(values.output) if values.output else None
    if output and output.exists():
        raise ConfigError(f"{output} exists: answers are never written over a file")
    body = _read(values.request)
    folder = _find_model(values)
    model = ServedModel(folder)
    try:
        answer = decide(model, body, threads=values.threads)
    except (ValidationError, RequestError) as bad:
        return _refuse(SystemOneDialect(model.name).refuse(bad))
    _write(answer, output)
    return 0


def decide(model: ServedModel, body: bytes, threads: int) -> bytes:
    """Checks the request before the weights are read. Raises ValidationError, RequestError or EngineFailed."""
    dialect = SystemOneDialect(model.name)
    asked = dialect.validate(dialect.decode(body, None))
    tokens = model.tokenize(asked.request)
    if not tokens.suffixes:
        return dialect.answer(asked, (), tokens.input_tokens)
    engine = load_engine(model.folder, threads)
    batch = BatchRun([Work("decide", 1, 1, tokens.prefix, tokens.suffixes)], DEFAULT_BATCH_TOKENS)
    for call in batch.calls:
        batch.run(engine, call)
    if batch.failures:
        raise batch.failures[0]
    return dialect.answer(asked, batch.answers()[0], tokens.input_tokens)


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as bad:
        raise ConfigError(f"{source}: {bad.strerror}") from bad


def _find_model(values: argparse.Namespace) -> ModelFolder:
    if values.model:
        return open_folder(Path(values.model).expanduser())
    return ensure_embedded(Path(values.cache_dir).expanduser(), values.precision, for_stderr())


def _write(answer: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(answer + (b"\n" if sys.stdout.isatty() else b""))
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with output.open("xb") as file:
            file.write(answer)
    except OSError as bad:
        raise ConfigError(f"{output}: {bad.strerror}") from bad


def _refuse(problem: Problem) -> int:
    sys.stderr.write(f"ostraka: {problem.body.decode()}\n")
    return 1
