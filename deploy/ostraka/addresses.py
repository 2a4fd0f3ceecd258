"""A server's address, as `--server` gives it."""

from urllib.parse import SplitResult, urlsplit

from ostraka_shared.errors import ConfigError


def read_url(url: str) -> SplitResult:
    """Raises ConfigError, which does not repeat the address: a password may be in it."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        is_server = False
    if not is_server:
        raise ConfigError("--server is not an address like http://127.0.0.1:8017")
    if "@" in parts.netloc:
        raise ConfigError("--server has a user or a password in it: a key is given as JEV_API_KEY")
    return parts
