"""The HTTP edge's settings: a supervisor is told them and tells its gateway, so both configs hold this one group."""

from dataclasses import dataclass

from ostraka_gateway.limits import Limits
from ostraka_shared.options import check_at_least, group, option

COMPATS = ("default", "jevos")


@dataclass(frozen=True)
class HttpConfig:
    compat: str = option("default", "whose statuses and bodies to speak; jevos: feder-cr/jev's", choices=COMPATS)
    name: str | None = option(None, "the name the model is served under; by default its own")
    limits: Limits = group(Limits)
    # A state of 256,000 bytes and 1,024 questions of 8,000 characters, with room for JSON's own.
    body_bytes: int = option(16 * 1024 * 1024, "most bytes of a request's body, decoded")
    read_timeout_s: float = option(10.0, "how long a request may take to arrive, in seconds")
    # With the gateway's other files, and those of 28 workers, within the 1,024 that any system lets a process open.
    connections: int = option(900, "most open connections; requests on others are refused with 503")
    rate_requests_per_min: int = option(0, "most decisions a minute of a key, or of all without keys; 0: no limit")
    rate_tokens_per_s: int = option(0, "most tokens a second of a key, or of all without keys; 0: no limit")
    api_keys_file: str | None = option(None, "a file of API keys, a `name:key` or key a line, which others cannot read")

    def __post_init__(self) -> None:
        if self.name is not None and not (self.name.strip() and self.name.isprintable()):
            raise ValueError(f"--name must be printable and not blank, not {self.name!r}")
        check_at_least(1, self, "body_bytes", "connections")
        check_at_least(0.001, self, "read_timeout_s")
        check_at_least(0, self, "rate_requests_per_min", "rate_tokens_per_s")
