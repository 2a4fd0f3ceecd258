"""The list of settings is that of the commands: one that is missing would have its variable refused."""

import importlib
import re
from argparse import SUPPRESS
from pathlib import Path

from ostraka.command import COMMANDS
from ostraka_gateway.auth import KEYS_VARIABLE
from ostraka_shared.options import build_parser
from ostraka_shared.setting_names import NO_KEYS, OF_COMPOSE, SETTINGS
from ostraka_shared.setting_sources import CONFIG_VARIABLE, PREFIX

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose.yaml"


def test_they_are_the_flags_of_all_commands():
    found = {"CACHE_DIR"}  # of `ostraka model` too, whose other flags are no settings
    for module, _ in COMMANDS.values():
        parser = build_parser("x", "x")
        importlib.import_module(module).register(parser)
        flags = {flag for action in parser._actions if action.default != SUPPRESS for flag in action.option_strings}
        found |= {flag.removeprefix("--").replace("-", "_").upper() for flag in flags}
    assert found - {"CONFIG"} == SETTINGS
    assert {KEYS_VARIABLE, CONFIG_VARIABLE} == {PREFIX + name for name in NO_KEYS}


def test_what_compose_is_told_with_is_known():
    told = set(re.findall(r"\$\{OSTRAKA_(\w+?)(?=[:}])", COMPOSE.read_text(encoding="utf-8")))
    assert told - SETTINGS == OF_COMPOSE
