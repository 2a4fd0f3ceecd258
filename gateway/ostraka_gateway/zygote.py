"""`python -m ostraka_gateway.zygote`: loads what a gateway needs, once, and forks those the supervisor asks for.

Of the 1.5 s that a gateway takes to start, 1.4 are Python's modules and the tokenizer.
"""

import socket
import sys
from collections.abc import Sequence

import structlog

from ostraka_gateway.__main__ import load_model
from ostraka_gateway.__main__ import main as serve
from ostraka_gateway.config import GatewayZygoteConfig
from ostraka_gateway.openapi.document import encoded
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.errors import OstrakaError
from ostraka_shared.logs import configure_logs
from ostraka_shared.options import add_options, build_parser, read_settings
from ostraka_shared.process_control import name_process
from ostraka_shared.stray_signals import log_stray_signals
from ostraka_shared.zygote import EXIT_FAILED, Zygote

log = structlog.get_logger()


def main(argv: list[str] | None = None) -> int:
    parser = build_parser("ostraka_gateway.zygote", "Loads a tokenizer and forks gateways; started by `ostraka serve`.")
    add_options(parser, GatewayZygoteConfig)
    values = parser.parse_args(argv)
    configure_logs("gateway zygote", values.log_format, values.log_level)
    log_stray_signals()
    name_process("ostraka gzygote")
    try:
        config = read_settings(GatewayZygoteConfig, values)
        with socket.socket(fileno=config.control_fd) as control:
            model = load_model(config.model, config.model_front, config.limits, config.name)
            Zygote(control, GatewayLife(model)).serve()
    except (OstrakaError, OSError, RuntimeError, MemoryError) as bad:
        log.error("cannot_fork_gateways", error=type(bad).__name__, detail=str(bad))
        return EXIT_FAILED
    return 0


class GatewayLife:
    spare_name = "ostraka gspare"

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        encoded(model.name, model.limits)

    def prepare(self) -> bool:
        return True

    def live(self, arguments: list[str], sockets: Sequence[int]) -> int:
        """`sockets`: the one to listen on, and the channel to the supervisor. Their numbers here are others than in the
        arguments, and of two the last one counts."""
        listener, control = sockets
        return serve([*arguments, f"--listen-fd={listener}", f"--control-fd={control}"], self._model)


if __name__ == "__main__":
    sys.exit(main())
