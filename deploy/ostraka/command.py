"""The `ostraka` command. Each subcommand is a module with `register(parser)` and `run(values) -> exit code`."""

import contextlib
import importlib
import os
import stat
import sys
from collections.abc import Iterator
from importlib.metadata import version

from ostraka.interrupts import EXIT_INTERRUPTED, ending_at_once
from ostraka_shared.errors import OstrakaError
from ostraka_shared.options import build_parser
from ostraka_shared.setting_sources import sources_named

EXIT_FAILED = 1
COMMANDS = {
    "serve": ("ostraka.serve_command", "run a gateway and its workers on this machine"),
    "decide": ("ostraka.decide_command", "answer one request file without a server"),
    "eval": ("ostraka.eval_command", "measure a model on labelled examples"),
    "rollout": ("ostraka.rollout_command", "go over to another model, or the same anew, without a lost request"),
    "chaos": ("ostraka.chaos_command", "break a process of a running server on purpose, to see that nothing is lost"),
    "model": ("ostraka.model_command", "build, list, verify and tune models"),
}


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"ostraka {version('ostraka')}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f"ostraka: no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return _run(name, arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    """Errors of ours end as one line; a traceback means a fault of ours."""
    _multiply_in_one_thread()
    try:
        with _nothing_for_all_to_write():
            code = _call(name, arguments)
        print(end="", flush=True)  # what cannot be written is said here, and not at the interpreter's end
    except BrokenPipeError:  # `| head`: whoever read has enough
        code = EXIT_FAILED
    except (OstrakaError, OSError) as bad:
        print(f"ostraka: {_describe(bad)}", file=sys.stderr)
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    _drop_unwritable()
    return code


def _call(name: str, arguments: list[str]) -> int:
    module_name, description = COMMANDS[name]
    with ending_at_once():
        module = importlib.import_module(module_name)
    parser = build_parser(f"ostraka {name}", f"{description[0].upper()}{description[1:]}.")
    module.register(parser)
    _log_to_stderr()
    values = parser.parse_args(arguments)
    with sources_named(values):
        return int(module.run(values))


def _log_to_stderr() -> None:
    """Of itself, the package would have warnings among the answers on stdout. What serves has a log of another form."""
    import structlog  # noqa: PLC0415  0.1 s, which --version and --help need not take

    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


@contextlib.contextmanager
def _nothing_for_all_to_write() -> Iterator[None]:
    """Whatever the umask is, as 000 in some containers: who can write to a cache, or beside a run directory, says what
    is answered. Children inherit it."""
    before = os.umask(0o077)
    os.umask(before | stat.S_IWOTH)
    try:
        yield
    finally:
        os.umask(before)


def _multiply_in_one_thread() -> None:
    """Numpy reads it when it is imported. Who multiplies here is the builder, whose check makes many small products:
    the embedded model took 15.5 s with one thread and 28 with two, on two cores that had a little else to do."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _describe(bad: Exception) -> str:
    if isinstance(bad, OSError) and bad.strerror:
        return f"{bad.filename}: {bad.strerror}" if bad.filename else bad.strerror
    return str(bad)


def _drop_unwritable() -> None:
    """What stdout's buffer could not give away would be tried again at the end, with a traceback."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {description}" for name, (_, description) in COMMANDS.items())
    return f"usage: ostraka COMMAND [options]\n\ncommands:\n{listed}\n\n`ostraka COMMAND --help` lists its options."
