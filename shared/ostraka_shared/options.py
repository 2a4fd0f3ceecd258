"""A process's settings: one frozen dataclass, from which flags, OSTRAKA_* variables and config-file keys follow.

Each field is declared with `option(default, help)`; its name is the flag's, the variable's and the key's. A field may
be a `group` instead: another such dataclass, whose fields are flags beside the others.
"""

from argparse import Action, ArgumentDefaultsHelpFormatter, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

import configargparse

from ostraka_shared.errors import ConfigError
from ostraka_shared.setting_sources import CONFIG_VARIABLE, PREFIX, TABLE, ConfigFile, Parser, sources_named

Settings = TypeVar("Settings")

MOST = 2**53
"""Of any number: beyond it no count and no time means anything, nor fits where it is going to be used."""


def option(default: Any, help_text: str, *, choices: Sequence[str] | None = None) -> Any:
    """A settings field. `default` may be MISSING: then it must be given."""
    return field(default=default, metadata={"help": help_text, "choices": choices})


def required(help_text: str) -> Any:
    return option(MISSING, help_text)


def group(settings: type[Any]) -> Any:
    """A field that holds settings of its own."""
    return field(default_factory=settings)


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    """Names a default where there is one; where there is none, the help text says what happens."""

    def _get_help_string(self, action: Action) -> str | None:
        has_default = action.default is not None and action.default is not False
        return super()._get_help_string(action) if has_default else action.help


def build_parser(prog: str, description: str) -> configargparse.ArgumentParser:
    parser = Parser(
        prog=prog,
        description=description,
        auto_env_var_prefix=PREFIX,
        config_file_parser_class=ConfigFile([TABLE]),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        is_config_file_arg=True,
        env_var=CONFIG_VARIABLE,
        metavar="FILE",
        help="a TOML file with an [ostraka] table",
    )
    return parser


def add_options(parser: configargparse.ArgumentParser, settings: type[Any]) -> None:
    hints = get_type_hints(settings)
    for each in fields(settings):
        if _is_group(hint := hints[each.name]):
            add_options(parser, hint)
        else:
            parser.add_argument("--" + each.name.replace("_", "-"), **_argument(each, hint))


def read_settings(settings: type[Settings], values: Namespace) -> Settings:
    """Raises ConfigError where the dataclass's own __post_init__ refuses a value with ValueError."""
    hints = get_type_hints(settings)
    with sources_named(values):
        try:
            return settings(**{each.name: _read(each.name, hints[each.name], values) for each in fields(settings)})  # type: ignore[arg-type]
        except ValueError as bad:
            raise ConfigError(str(bad)) from bad


def _read(name: str, hint: Any, values: Namespace) -> Any:
    if _is_group(hint):
        return read_settings(hint, values)
    value = getattr(values, name)
    if value == []:  # all that argparse before Python 3.13 leaves of `--name=--`, whatever the option's type
        raise ValueError(f"--{name.replace('_', '-')} must not be just --")
    return value


def to_flags(settings: Any) -> list[str]:
    """The command line that gives a child process these settings. Unset ones are left out."""
    flags: list[str] = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if is_dataclass(value):
            flags += to_flags(value)
            continue
        if value is None or value is False:
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        flags.append(f"--{each.name.replace('_', '-')}" + ("" if value is True else f"={text}"))
    return flags


def check_at_least(least: float, settings: Any, *names: str) -> None:
    """For a __post_init__: raises ValueError naming the flag; also for what is no finite number, or beyond all use."""
    for name in names:
        value = getattr(settings, name)
        if not value >= least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
        if value > MOST:
            raise ValueError(f"--{name.replace('_', '-')} must be at most {MOST}, not {value}")


def expand_user(path: str | Path) -> Path:
    """`~` and `~name` as a shell has them. Raises ConfigError where there is no such user, or no home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as bad:
        raise ConfigError(f"{path} names no folder: {bad}") from bad


def _is_group(hint: Any) -> TypeGuard[type[Any]]:
    return is_dataclass(hint)


def _argument(each: "Field[Any]", hint: Any) -> dict[str, Any]:
    argument: dict[str, Any] = {"help": each.metadata["help"]}
    if hint is bool:
        return argument | {"action": "store_true"}
    if each.metadata["choices"]:
        argument["choices"] = each.metadata["choices"]
    argument["type"] = (
        _list_parser(get_args(hint)[0])
        if get_origin(hint) is tuple
        else next(t for t in (*get_args(hint), hint) if callable(t))
    )
    if each.default is MISSING:
        return argument | {"required": True}
    return argument | {"default": each.default}


def _list_parser(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def parse_list(text: str) -> tuple[Any, ...]:
        try:
            return tuple(parse(each) for each in text.split(",") if each)
        except ValueError:  # argparse's own message would name this function
            kind = "whole numbers" if parse is int else f"values of type {parse.__name__}"
            raise ArgumentTypeError(f"{text!r} should be {kind} with commas between") from None

    return parse_list
