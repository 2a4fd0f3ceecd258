"""Flags and names that the `ostraka model` commands share."""

import argparse
import os
import re
from pathlib import Path

from ostraka_shared.errors import ConfigError
from ostraka_shared.options import expand_user
from ostraka_shared.setting_sources import flag_named

DEFAULT_CACHE_DIR = Path("~/.cache/ostraka")


def add_cache_dir(parser: argparse.ArgumentParser) -> None:
    help_text = f"downloads and models; default: $OSTRAKA_CACHE_DIR or {DEFAULT_CACHE_DIR}"
    parser.add_argument("--cache-dir", type=Path, metavar="DIR", help=help_text)


def find_cache_dir(values: argparse.Namespace) -> Path:
    """Raises ConfigError where its `~` is nobody's."""
    with flag_named("--cache-dir (or OSTRAKA_CACHE_DIR)"):
        return expand_user(values.cache_dir or os.environ.get("OSTRAKA_CACHE_DIR") or DEFAULT_CACHE_DIR)


def check_threads(threads: int) -> None:
    """Raises ConfigError: more threads than cores wait for each other, and thousands for ever."""
    cores = len(os.sched_getaffinity(0))
    if not 1 <= threads <= cores:
        raise ConfigError(f"--threads must be from 1 to {cores}, the cores that this process may use, not {threads}")


def folder_name(text: str) -> str:
    """A folder name of the cache: letters, digits, dot, dash, underscore; not hidden. Raises ConfigError."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")
    if not name:
        raise ConfigError(f"{text!r} has no letter or digit to name a folder with: give it a --name")
    return name


def flag_name(text: str) -> str:
    """As argparse wants it."""
    try:
        return folder_name(text)
    except ConfigError as bad:
        raise argparse.ArgumentTypeError(str(bad)) from bad
