"""Where settings come from besides the command line, and what is not to be taken for one: a variable that is empty or
that Kubernetes has set, a line of the config file outside of our table. What nothing reads is refused."""

import difflib
import io
import os
import re
import sys
import tomllib
from argparse import Namespace, _SubParsersAction
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import configargparse

from ostraka_shared.errors import ConfigError, OstrakaError
from ostraka_shared.setting_names import NO_KEYS, OF_COMPOSE, SETTINGS

PREFIX = "OSTRAKA_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
TABLE = "ostraka"
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_OF_A_SERVICE = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


class Parser(configargparse.ArgumentParser):  # type: ignore[misc]
    """A mistake is one line, which says where the wrong value came from."""

    def parse_args(self, args: Any = None, namespace: Any = None, **more: Any) -> Namespace:
        """The result's `setting_sources` are those of `sources`, its `typed_flags` those of the command line itself."""
        found, unknown = self.parse_known_args(args, namespace, **more)
        if unknown:
            self.error(self._describe_unknown(unknown))
        self._refuse_unread_variables()
        found.setting_sources = self.sources
        found.typed_flags = _typed_flags(sys.argv[1:] if args is None else args)
        return found  # type: ignore[no-any-return]

    def parse_known_args(self, *args: Any, **more: Any) -> Any:
        """Also what a subcommand's parser is asked."""
        self.sources: dict[str, str] = {}
        """Of a flag that a variable or a file gave: what to call that."""
        return super().parse_known_args(*args, **more)

    def convert_item_to_command_line_arg(self, action: Any, key: str, value: Any) -> list[str]:
        """What a variable or a line of a file is on the command line."""
        is_variable = action is not None and key == action.env_var
        if (is_variable and not is_meant(key, value)) or (action is None and _is_key_of_another(key)):
            return []
        source = key if is_variable else f"{key} in {self._config_file_parser.name}"
        self.sources[action.option_strings[-1] if action else f"--{key}"] = source
        found: list[str] = super().convert_item_to_command_line_arg(action, key, value)
        return found

    def error(self, message: str) -> NoReturn:
        """Without the usage, in whose lines the one that matters is lost."""
        head, colon, rest = message.partition(": ")
        flag = head.removeprefix("argument ").rpartition("/")[2]
        if head == "Unable to open config file":
            flag, rest = "--config", message
        if colon and flag in (sources := getattr(self, "sources", {})):
            message = f"{sources[flag]}: {rest}"
        sys.stderr.write(f"{self.prog}: {message} (see {self.prog} --help)\n")
        raise SystemExit(2)

    def _refuse_unread_variables(self) -> None:
        own = {variable for action in self._actions if (variable := getattr(action, "env_var", None))}
        known = own | {PREFIX + name for name in SETTINGS | NO_KEYS}
        for name, value in sorted(os.environ.items()):
            if name.startswith(PREFIX) and name not in known and not _is_of_others(name, value):
                near = difflib.get_close_matches(name.removeprefix(PREFIX), [n.removeprefix(PREFIX) for n in known], 1)
                self.error(f"{name}: there is no such setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else ""))

    def _describe_unknown(self, unknown: list[str]) -> str:
        said = f"unrecognized arguments: {' '.join(unknown)}"
        flag = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(flag, _flags_of(self), 1) if flag.startswith("--") else []
        if flag in self.sources:
            said = f"{self.sources[flag]}: there is no such setting"
        dashes = "" if flag in self.sources else "--"
        return said + (f"; did you mean {dashes}{near[0].removeprefix('--')}?" if near else "")


def _typed_flags(arguments: Sequence[str]) -> frozenset[str]:
    """Before a lone `--`, after which all are what they look like."""
    flags = [*arguments, "--"]
    return frozenset(each.partition("=")[0] for each in flags[: flags.index("--")] if each.startswith("--"))


@contextmanager
def sources_named(values: Namespace) -> Iterator[None]:
    """An error of ours in the block says of each flag that it names which variable or line of a file gave it."""
    try:
        yield
    except OstrakaError as bad:
        bad.args = (_name_sources(str(bad), values),)
        raise


@contextmanager
def flag_named(flag: str) -> Iterator[None]:
    """An error of ours in the block begins with the flag whose value is at fault."""
    try:
        yield
    except OstrakaError as bad:
        bad.args = (f"{flag}: {bad}",)
        raise


def _name_sources(said: str, values: Namespace) -> str:
    """Once: what is named already is not named again."""
    sources: dict[str, str] = getattr(values, "setting_sources", {})
    named = [flag for flag in dict.fromkeys(re.findall(r"--[a-z-]+", said)) if flag in sources]
    told = "; ".join(f"{flag}: {sources[flag]}" for flag in named if sources[flag] not in said)
    return f"{said} ({told})" if told else said


def refuse_unused(values: Namespace, why: str, *flags: str) -> None:
    """Raises ConfigError for what somebody typed and nothing reads. A variable or a line of a file is for every
    command, and one that has no use for it leaves it alone."""
    for flag in flags:
        if flag in getattr(values, "typed_flags", ()):
            raise ConfigError(f"{flag} has no effect {why}: leave it out")


def _flags_of(parser: Any) -> list[str]:
    """With those of its subcommands."""
    flags: list[str] = []
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to ask
        flags += action.option_strings
        if isinstance(action, _SubParsersAction):
            for each in action.choices.values():
                flags += _flags_of(each)
    return flags


class ConfigFile(configargparse.TomlConfigParser):  # type: ignore[misc]
    """The table alone, and no setting beside it: it would have no effect, be it the one that names the keys."""

    name = "the config file"

    def parse(self, stream: Any) -> Any:
        self.name = stream.name
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
        if "config" in found.get(TABLE, ()):
            raise configargparse.ConfigFileParserException(
                f"config in {stream.name} has no effect: only the file that --config or {CONFIG_VARIABLE} names is read"
            )
        return super().parse(io.StringIO(text))


def is_meant(variable: str, value: str) -> bool:
    """An empty variable is an unset one: compose files have it so. For a Service called `ostraka`, Kubernetes gives
    each pod an OSTRAKA_PORT that is an address."""
    return bool(value) and not (variable.endswith("_PORT") and _ADDRESS.match(value))


def _is_of_others(variable: str, value: str) -> bool:
    """What a Service called `ostraka` or `ostraka-...` gives each pod, and what our compose file is told with."""
    is_ours = variable.removeprefix(PREFIX) in OF_COMPOSE
    return is_ours or not is_meant(variable, value) or bool(_OF_A_SERVICE.fullmatch(variable))


def _is_key_of_another(key: str) -> bool:
    """In the file's spelling."""
    return key == key.lower() and "_" not in key and key.upper().replace("-", "_") in SETTINGS
