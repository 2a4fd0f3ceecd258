"""The flags that say who answers, a model in this process or a running server, and what they name."""

import argparse
import os

from ostraka.answerers import Answerer, LocalModel, Server
from ostraka.embedded_model import find_model
from ostraka.model_options import check_threads
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.errors import ConfigError
from ostraka_shared.setting_sources import refuse_unused
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from ostraka_worker.config import DEFAULT_BATCH_TOKENS


def register_answerer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        metavar="URL",
        help="ask a running server instead of loading a model; JEV_API_KEY is its key, if it wants one",
    )
    parser.add_argument("--concurrency", type=int, default=16, metavar="N", help="requests in flight to the server")
    parser.add_argument("--model", metavar="DIR", help="a model folder (default: the embedded model)")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help=f"of the embedded model (default: {DEFAULT_PRECISION}); a --model must have it where it is given",
    )
    parser.add_argument("--cache-dir", default="~/.cache/ostraka", help="where downloads and built models are kept")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="cores to use here")


def find_answerer(values: argparse.Namespace, other: str | None = None) -> Answerer:
    """`other`: what is going to be named to `find_other_answerer`, if anything is."""
    _refuse_unused(values, other)
    return _ask_server(values.server, values) if values.server else _load(values.model, values.precision, values)


def find_other_answerer(named: str, values: argparse.Namespace) -> Answerer:
    """`named`: a server's address or a model folder, of any precision: that is what may be compared."""
    return _ask_server(named, values) if _is_address(named) else _load(named, None, values, "--compare")


def _is_address(named: str) -> bool:
    return named.startswith(("http://", "https://"))


def _refuse_unused(values: argparse.Namespace, other: str | None) -> None:
    are_servers = {bool(values.server)} | ({_is_address(other)} if other else set())
    if values.server:
        refuse_unused(values, "beside --server: the model is the server's", "--model", "--precision", "--cache-dir")
    elif values.model:
        refuse_unused(values, "beside --model: nothing is built", "--cache-dir")
    if False not in are_servers:
        refuse_unused(values, "beside --server: no model is loaded here", "--threads")
    if True not in are_servers:
        refuse_unused(values, "without --server", "--concurrency")


def _ask_server(url: str, values: argparse.Namespace) -> Answerer:
    if values.concurrency < 1:
        raise ConfigError(f"--concurrency must be at least 1, not {values.concurrency}")
    return Server(url, values.concurrency, _read_key())


def _read_key() -> str | None:
    """Trimmed, as the server does with it: a secret that was read from a file ends with a line's end."""
    key = os.environ.get("JEV_API_KEY", "").strip()
    if not all("!" <= each <= "~" for each in key):
        raise ConfigError("JEV_API_KEY should be printable ASCII without spaces")
    return key or None


def _load(folder: str | None, precision: str | None, values: argparse.Namespace, flag: str = "--model") -> Answerer:
    check_threads(values.threads)
    found = find_model(folder, values.cache_dir, precision, flag)
    return LocalModel(ServedModel(found), values.threads, DEFAULT_BATCH_TOKENS)
