"""`python -m ostraka_gateway`: one gateway process. Exit codes: 0 drained, 1 cannot serve, or did not answer all."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog
import uvicorn
import uvloop

from ostraka_gateway import status
from ostraka_gateway.app import create_app, dialects_of
from ostraka_gateway.auth import load_keys
from ostraka_gateway.cluster import Cluster
from ostraka_gateway.config import GatewayConfig
from ostraka_gateway.control import Control
from ostraka_gateway.count_files import CountFiles
from ostraka_gateway.decision import Gateway
from ostraka_gateway.early_refusal import EarlyRefusal
from ostraka_gateway.http_process import HttpProcess
from ostraka_gateway.large_bodies import LargeBodies
from ostraka_gateway.limits import Limits
from ostraka_gateway.metrics import Metrics
from ostraka_gateway.rate_limit import RateLimit
from ostraka_gateway.refusing_protocol import protocol_for
from ostraka_gateway.roster import Roster
from ostraka_gateway.served_model import ServedModel
from ostraka_gateway.siblings import Siblings
from ostraka_shared.addresses import METRICS_FOLDER, check_endpoint, gateway_name
from ostraka_shared.errors import OstrakaError
from ostraka_shared.front_files import open_front
from ostraka_shared.logs import configure_logs
from ostraka_shared.model_folder import open_folder
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.process_control import name_process
from ostraka_shared.stray_signals import log_stray_signals

log = structlog.get_logger()

KEEP_ALIVE_S = 60
EXIT_UNANSWERED = 1
SWITCH_INTERVAL_S = 0.0005
"""How long a thread that has something to work out keeps the event loop waiting each time. Python's default of 5 ms is
what a request would take ten times, beside one whose long texts are being prepared."""
GC_THRESHOLD = 20_000
"""New objects from one collection to the next: hardly any are garbage that only a collection finds. Python's 700 are a
dozen requests, and cost 5 to 8 % of their time."""
LAST_WORDS_S = 0.1
"""For a response to be written, and to leave."""


def main(
    argv: list[str] | None = None, model: ServedModel | None = None, on_serving: Callable[[], None] = lambda: None
) -> int:
    """`model`: where this process was forked from one that has it. `on_serving` is then called once it serves."""
    parser = build_parser("ostraka_gateway", "The HTTP side: takes requests and gives them to workers.")
    add_options(parser, GatewayConfig)
    values = parser.parse_args(argv)
    configure_logs(gateway_name(values.number), values.log_format, values.log_level)
    log_stray_signals()
    name_process(f"ostraka g{values.number}")
    # Two threads of ours tokenize; the package's own pool, one thread a core, would fight the workers for theirs.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        config = read_settings(GatewayConfig, values)
        for endpoint in (config.workers_at, *(f"ipc://{path}" for path in config.figures_at)):
            check_endpoint(endpoint)
        model = model or load_model(config.model, config.cluster.model_front, config.http.limits, config.http.name)
        return uvloop.run(serve(config, model, on_serving))
    except (OstrakaError, OSError) as bad:
        log.error("cannot_serve", error=type(bad).__name__, detail=str(bad))
        return 1


def load_model(path: str, front: str | None, limits: Limits, name: str | None) -> ServedModel:
    """`front`: where a copy of its small files is, if they are read there. Raises ModelMissing or ModelDamaged."""
    folder = open_front(Path(front), Path(path)) if front else open_folder(Path(path))
    return ServedModel(folder, limits, name)


async def serve(config: GatewayConfig, model: ServedModel, on_serving: Callable[[], None]) -> int:
    gateway = build_gateway(config, model)
    await gateway.siblings.start(lambda: status.figures(gateway))
    gateway.cluster.start(config.workers_at)
    server = build_server(config, gateway)
    loop = asyncio.get_running_loop()
    for stop in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(stop, _leave, gateway, server)
    control = None
    if config.rollout.control_fd is not None:
        channel = socket.socket(fileno=config.rollout.control_fd)
        control = Control(channel, gateway, server, lambda: _leave(gateway, server))
        control.start()
    # What is here now stays: 80,000 objects, which each full collection would look through for 60 to 170 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    log.info(
        "serving",
        model=gateway.model.name,
        fingerprint=gateway.model.folder.fingerprint[:12],
        generation=config.rollout.generation,
        keys=gateway.keys.names,
    )
    on_serving()
    await server.run_until_drained()
    unfinished = [task for task in server.server_state.tasks if not task.done()]
    unanswered = max(0, len(unfinished) - server.arriving_requests)
    if unfinished:  # the grace period is over, and each of these is just being told so
        await asyncio.wait(unfinished, timeout=LAST_WORDS_S)
        await asyncio.sleep(LAST_WORDS_S)
    if control:
        control.stop()
    gateway.cluster.stop()
    gateway.siblings.stop()
    gateway.tokenizer_pool.shutdown(cancel_futures=True)
    gateway.large_bodies.close()
    log.info("stopped", unanswered_requests=unanswered)
    return EXIT_UNANSWERED if unanswered else 0


def build_server(config: GatewayConfig, gateway: Gateway) -> HttpProcess:
    return HttpProcess(
        uvicorn.Config(
            create_app(gateway, config.http.compat),
            http=protocol_for(
                config.http.read_timeout_s,
                config.http.connections,
                EarlyRefusal(gateway, dialects_of(gateway.model, config.http.compat)),
            ),
            lifespan="off",
            log_config=None,
            log_level="warning",  # its start and stop are told in our own words
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, int(config.grace_s)),
        ),
        socket.socket(fileno=config.listen_fd),
        config.rollout.private_socket,
        is_standby=config.rollout.standby,
    )


def build_gateway(config: GatewayConfig, model: ServedModel) -> Gateway:
    roster = Roster(config.cluster.cluster_id, model.folder.fingerprint, asyncio.get_running_loop().time())
    own = Path(config.figures_at[config.number])
    names = [gateway_name(number) for number in range(len(config.figures_at))]
    others = {name: path for name, path in zip(names, config.figures_at, strict=True) if path != str(own)}
    files = CountFiles(own.parent / METRICS_FOLDER, names[config.number]) if others else None
    cluster = Cluster(roster, Metrics(files), config.heartbeat_ms, config.queue_tokens, config.answer_cache_bytes)
    return Gateway(
        name=names[config.number],
        siblings=Siblings(str(own), others),
        model=model,
        cluster=cluster,
        tokenizer_pool=ThreadPoolExecutor(config.tokenizer_threads, thread_name_prefix="tokenizer"),
        large_bodies=LargeBodies(config.http.body_bytes),
        deadline_ms=config.deadline_ms,
        started=datetime.now(UTC).date().isoformat(),
        body_bytes=config.http.body_bytes,
        read_timeout_s=config.http.read_timeout_s,
        keys=replace(load_keys(os.environ, config.http.api_keys_file), is_exact=config.http.compat == "jevos"),
        rate_limit=RateLimit(config.http.rate_requests_per_min, config.http.rate_tokens_per_s, len(names)),
        wanted_workers=config.cluster.wanted_workers,
    )


def _leave(gateway: Gateway, server: HttpProcess) -> None:
    """At first: not ready, no new connections, what is in flight is answered. The second time, now.

    The listening socket is the supervisor's: other gateways may accept on it, or are about to.
    """
    gateway.is_draining = True
    if gateway.successor:
        gateway.successor.make_room()
    server.leave(gateway.successor.socket_path if gateway.successor else None)
    log.info("draining", in_flight_requests=gateway.cluster.single_flight.in_flight_requests)


if __name__ == "__main__":
    sys.exit(main())
