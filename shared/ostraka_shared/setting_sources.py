"""Where settings come from besides the command line, and what is not to be taken for one: a variable that is empty or
that Kubernetes has set, a line of the config file outside of our table."""

import io
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import configargparse

PREFIX = "OSTRAKA_"
TABLE = "ostraka"


class Parser(configargparse.ArgumentParser):  # type: ignore[misc]
    """Reads the process's environment, as its base does where none is given; and not all that is there."""

    def parse_known_args(self, *given: Any, env_vars: Mapping[str, str], **rest: Any) -> tuple[Namespace, list[str]]:
        values, unknown = super().parse_known_args(*given, env_vars=meant_variables(env_vars), **rest)
        return values, unknown


class ConfigFile(configargparse.TomlConfigParser):  # type: ignore[misc]
    """The table alone, and no setting beside it: it would have no effect, be it the one that names the keys."""

    def parse(self, stream: Any) -> Any:
        try:
            text = stream.read()
            found = tomllib.loads(text)
        except ValueError as bad:
            raise configargparse.ConfigFileParserException(f"{stream.name} is not TOML: {bad}") from None
        loose = [name for name, value in found.items() if name == TABLE or not isinstance(value, dict)]
        if found and (loose != [TABLE] or not isinstance(found[TABLE], dict)):
            raise configargparse.ConfigFileParserException(
                f"{stream.name} should have an [{TABLE}] table, and every setting in it"
            )
        return super().parse(io.StringIO(text))


def meant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An empty variable is an unset one: compose files have it so. For a Service called `ostraka`, Kubernetes gives
    each pod an OSTRAKA_PORT that is an address."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(PREFIX) or (value and not (name == "OSTRAKA_PORT" and value.startswith("tcp://")))
    }
