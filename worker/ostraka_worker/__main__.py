"""`python -m ostraka_worker`: one worker process. Exit codes: 0 drained, 1 cannot serve, 3 refused by the gateway."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from ostraka_shared.addresses import check_endpoint, host_id
from ostraka_shared.errors import OstrakaError
from ostraka_shared.logs import configure_logs
from ostraka_shared.messages import Hello
from ostraka_shared.model_folder import ModelFolder, open_folder
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.process_control import name_process
from ostraka_shared.stray_signals import log_stray_signals
from ostraka_worker.config import WorkerConfig
from ostraka_worker.loading import Warm, load_owned
from ostraka_worker.service import Service
from ostraka_worker.snapshots import Snapshots
from ostraka_worker.transport import GatewayLinks

log = structlog.get_logger()

EXIT_CANNOT_SERVE = 1
EXIT_REFUSED = 3
NICENESS = 5
"""The gateway is what everybody waits for; where it shares cores with workers, it goes first. Two workers, gateway and
client on two cores, int8, at three times the capacity: refusals' p99 30 ms instead of 190, 155 requests/s, not 140."""


def main(argv: list[str] | None = None, warm: Warm | None = None, on_serving: Callable[[], None] = lambda: None) -> int:
    """`warm`: the model, where this process was forked from one that has it. `on_serving` is then called once it
    serves."""
    parser = build_parser("ostraka_worker", "One model worker: dials its gateways and answers what they send.")
    add_options(parser, WorkerConfig)
    values = parser.parse_args(argv)
    configure_logs(f"worker {values.worker_id}", values.log_format, values.log_level)
    log_stray_signals()
    try:
        return serve(read_settings(WorkerConfig, values), warm, on_serving)
    except (OstrakaError, OSError, RuntimeError, MemoryError) as bad:
        log.error("cannot_serve", error=type(bad).__name__, detail=str(bad))
        return EXIT_CANNOT_SERVE


def serve(config: WorkerConfig, warm: Warm | None, on_serving: Callable[[], None]) -> int:
    for endpoint in config.gateway:
        check_endpoint(endpoint)
    name_process(f"ostraka {config.worker_id}")
    os.nice(NICENESS)
    if config.cores:
        # Before the model loads, so that its memory is first touched from these cores.
        os.sched_setaffinity(0, config.cores)
    folder = warm.loaded.folder if warm else replace(open_folder(Path(config.model)), seal=config.seal or "")
    links = GatewayLinks(config.gateway, f"{config.worker_id}.{config.incarnation}")
    snapshots = Snapshots(config.cache.state_cache, config.cache.state_cache_tokens)
    service = Service(
        links, make_hello(config, folder), config.batch_tokens, config.credit_tokens, snapshots, config.idle_call_s
    )
    links.wake_on_signals()
    begun = time.monotonic()
    service.introduce()
    if warm is None:
        service.load(lambda: load_owned(folder, config.threads or max(1, len(config.cores))).engine)
    signal.signal(signal.SIGTERM, lambda *_: _stop(service))
    signal.signal(signal.SIGINT, lambda *_: _stop(service))
    if warm is None:
        service.warm_up()
    else:
        service.adopt(warm.loaded.engine, warm.tokens_per_s)
    log.info("ready", model=folder.spec.name, cores=config.cores, load_s=round(time.monotonic() - begun, 2))
    on_serving()
    service.run()
    links.close()
    if service.refusal:
        log.error("refused", code=service.refusal.code, detail=service.refusal.message)
        return EXIT_REFUSED
    log.info("stopped")
    return 0


def make_hello(config: WorkerConfig, folder: ModelFolder) -> Hello:
    return Hello(
        cluster_id=config.cluster_id,
        worker_id=config.worker_id,
        incarnation=config.incarnation,
        fingerprint=folder.fingerprint,
        host=host_id(),
        pid=os.getpid(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
    )


def _stop(service: Service) -> None:
    """The first signal drains; a second one leaves at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    service.request_drain()


if __name__ == "__main__":
    sys.exit(main())
