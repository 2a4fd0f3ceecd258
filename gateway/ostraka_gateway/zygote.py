"""`python -m ostraka_gateway.zygote`: loads what a gateway needs, once, and forks those the supervisor asks for.

Of the 1.5 s that a gateway takes to start, 1.4 are Python's modules and the tokenizer.
"""

import sys
from collections.abc import Callable, Sequence

from ostraka_gateway.__main__ import load_model
from ostraka_gateway.__main__ import main as serve
from ostraka_gateway.config import GatewayZygoteConfig
from ostraka_gateway.openapi.document import encoded
from ostraka_gateway.served_model import ServedModel
from ostraka_shared.zygote import Program, run_program

PROGRAM = Program(
    module="ostraka_gateway.zygote",
    description="Loads a tokenizer and forks gateways; started by `ostraka serve`.",
    settings=GatewayZygoteConfig,
    log_name="gateway zygote",
    ps_name="ostraka gzygote",
)


def main(argv: list[str] | None = None) -> int:
    return run_program(PROGRAM, load, argv)


def load(config: GatewayZygoteConfig) -> "GatewayLife":
    return GatewayLife(load_model(config.model, config.model_front, config.limits, config.name))


class GatewayLife:
    spare_name = "ostraka gspare"

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        encoded(model.name, model.limits)

    def prepare(self) -> bool:
        return True

    def live(self, arguments: list[str], sockets: Sequence[int], on_serving: Callable[[], None]) -> int:
        """`sockets`: the one to listen on, and the channel to the supervisor. Their numbers here are others than in the
        arguments, and of two the last one counts."""
        listener, control = sockets
        return serve([*arguments, f"--listen-fd={listener}", f"--control-fd={control}"], self._model, on_serving)


if __name__ == "__main__":
    sys.exit(main())
