"""What the pages name is there, and what there is to set is named in a page."""

import argparse
import importlib
import re
from pathlib import Path

import pytest

from ostraka.command import COMMANDS
from ostraka_shared.options import build_parser

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/README.md", ROOT / "deploy/README.md"]
)
FOLDERS = "tests|docs|benchmarks|deploy|examples|training|gateway|worker|shared"
SOURCES = {path.name for folder in FOLDERS.split("|") for path in (ROOT / folder).rglob("*.py")} | {"hatch_build.py"}
SERVING = frozenset({"serve", "decide", "eval", "rollout", "chaos"})
"""Others have one page each, and those who use them its --help."""


def options_of(parser):
    """Of its subcommands too."""
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from options_of(each)


def options(command):
    module, description = COMMANDS[command]
    parser = build_parser(command, description)
    importlib.import_module(module).register(parser)
    return {*options_of(parser)} - {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_are_there(page):
    named = re.findall(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w", page.read_text(encoding="utf-8"))
    missing = [name for name in named if not (ROOT / name).exists() and not [*ROOT.glob(f"{name}-*.md")]]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_modules_that_a_page_names_are_there(page):
    assert not set(re.findall(r"\b[a-z][a-z0-9_]*\.py\b", page.read_text(encoding="utf-8"))) - SOURCES


@pytest.mark.parametrize("command", sorted(SERVING))
def test_every_option_is_named_in_a_page(command):
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not {name for name in options(command) if not re.search(rf"{name}(?![\w-])", pages)}
