"""API keys: where they come from, and whose a request is. Keys are never logged, shown or passed on a command line."""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ostraka_shared.errors import ConfigError, Unauthenticated
from ostraka_shared.options import expand_user
from ostraka_shared.setting_sources import flag_named

ONE_KEY_VARIABLE = "JEV_API_KEY"
KEYS_VARIABLE = "OSTRAKA_API_KEYS"
VARIABLES = (ONE_KEY_VARIABLE, KEYS_VARIABLE)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEY = re.compile(r"[!-~]+")  # what an HTTP header can carry without quoting
_BEARER = re.compile(r"bearer +(.*)", re.IGNORECASE)
_EXACT_BEARER = re.compile(r"Bearer ([!-~]+)")


@dataclass(frozen=True, slots=True)
class Keys:
    """(name, SHA-256 of the key), in the order given. A name may have several keys, so that one can be replaced."""

    digests: tuple[tuple[str, bytes], ...] = ()
    # As jev compares the header: `Bearer`, one space, the key.
    is_exact: bool = False

    @property
    def names(self) -> list[str]:
        return sorted({name for name, _ in self.digests})

    def check(self, authorization: str | None) -> str | None:
        """The name of the key an Authorization header holds; None where there are no keys. Raises Unauthenticated.

        Its time does not tell how much of a key is right, nor which: digests are compared, and always all of them.
        """
        if not self.digests:
            return None
        given = (_EXACT_BEARER if self.is_exact else _BEARER).fullmatch(authorization or "")
        digest = _digest(given[1].rstrip(" ") if given else "")
        found = None
        for name, known in self.digests:
            if hmac.compare_digest(digest, known):
                found = name
        if given is None or found is None:
            raise Unauthenticated("this server wants an API key it knows: send it as `Authorization: Bearer KEY`")
        return found


def load_keys(environment: Mapping[str, str], file: str | None) -> Keys:
    """Raises ConfigError, which names the place of what is wrong and never quotes it."""
    keys = _Reader()
    # An empty variable is an unset one: compose files and jev itself have it so.
    if one := environment.get(ONE_KEY_VARIABLE, "").strip():
        keys.add_bare(one, ONE_KEY_VARIABLE)
    if several := environment.get(KEYS_VARIABLE, "").strip():
        for number, entry in enumerate(several.split(","), 1):
            keys.add(entry.strip(), f"entry {number} of {KEYS_VARIABLE}")
    if file is not None:
        with flag_named("--api-keys-file"):
            keys.add_file(expand_user(file))
    return Keys(tuple(keys.found))


class _Reader:
    def __init__(self) -> None:
        self.found: list[tuple[str, bytes]] = []
        self._bare_count = 0

    def add_file(self, path: Path) -> None:
        before = len(self.found)
        for number, line in enumerate(_read_private(path).splitlines(), 1):
            if line.strip() and not line.strip().startswith("#"):
                self.add(line.strip(), f"line {number} of {path}")
        if len(self.found) == before:
            raise ConfigError(f"{path} holds no key: write one into it, or leave the file out")

    def add(self, entry: str, place: str) -> None:
        name, colon, key = entry.partition(":")
        if not colon:
            self.add_bare(entry, place)
            return
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{place}: a key's name should be 1 to 64 letters, digits, dots, dashes or underscores")
        self._append(name, key.strip(), place)

    def add_bare(self, key: str, place: str) -> None:
        self._bare_count += 1
        self._append(f"key{self._bare_count}", key, place)

    def _append(self, name: str, key: str, place: str) -> None:
        if not _KEY.fullmatch(key):
            raise ConfigError(f"{place}: a key should be printable ASCII without spaces, and not empty")
        self.found.append((name, _digest(key)))


def _read_private(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:  # Windows' editors put a mark before it
            if os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise ConfigError(f"others may read {path} or write to it: chmod o-rwx, and think of the keys as known")
            return file.read()
    except OSError as bad:
        raise ConfigError(f"{path}: {bad.strerror}") from bad
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
