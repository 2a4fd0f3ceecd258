"""The `ostraka` command. Each subcommand is a module with `register(parser)` and `run(values) -> exit code`."""

import importlib
import sys
from importlib.metadata import version

from ostraka_shared.errors import OstrakaError
from ostraka_shared.options import build_parser

COMMANDS = {
    "serve": ("ostraka.serve_command", "run a gateway and its workers on this machine"),
    "decide": ("ostraka.decide_command", "answer one request file without a server"),
    "model": ("ostraka.model_command", "build, list and verify model folders"),
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
    module_name, description = COMMANDS[name]
    module = importlib.import_module(module_name)
    parser = build_parser(f"ostraka {name}", f"{description[0].upper()}{description[1:]}.")
    module.register(parser)
    try:
        return int(module.run(parser.parse_args(arguments)))
    except OstrakaError as bad:
        print(f"ostraka: {bad}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _usage() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {description}" for name, (_, description) in COMMANDS.items())
    return f"usage: ostraka COMMAND [options]\n\ncommands:\n{listed}\n\n`ostraka COMMAND --help` lists its options."


if __name__ == "__main__":
    sys.exit(main())
