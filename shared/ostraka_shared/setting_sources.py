"""Where settings come from besides the command line, and what is not to be taken for one: a variable that is empty or
that Kubernetes has set, a line of the config file outside of our table."""

import io
import tomllib
from typing import Any

import configargparse

PREFIX = "OSTRAKA_"
TABLE = "ostraka"


class Parser(configargparse.ArgumentParser):  # type: ignore[misc]
    def convert_item_to_command_line_arg(self, action: Any, key: str, value: Any) -> list[str]:
        """What a variable or a line of a file is on the command line."""
        is_variable = action is not None and key == action.env_var
        if is_variable and not is_meant(key, value):
            return []
        found: list[str] = super().convert_item_to_command_line_arg(action, key, value)
        return found


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


def is_meant(variable: str, value: str) -> bool:
    """An empty variable is an unset one: compose files have it so. For a Service called `ostraka`, Kubernetes gives
    each pod an OSTRAKA_PORT that is an address."""
    return bool(value) and not (variable == f"{PREFIX}PORT" and value.startswith("tcp://"))
