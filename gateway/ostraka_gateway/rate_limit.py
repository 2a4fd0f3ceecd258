"""How often, and how much: token buckets for each key. No clock of its own: times are passed in, in seconds."""

import math
from dataclasses import dataclass

from ostraka_shared.errors import RateLimited

_REQUESTS_S = 60.0
_TOKENS_S = 1.0


@dataclass(slots=True)
class Bucket:
    """Holds `capacity` at most and refills at `per_s`. Full at first."""

    capacity: float
    per_s: float
    level: float
    filled: float

    def wait_s(self, needed: float, now: float) -> float:
        """Until `needed` is there; 0 where it is already."""
        self.level = min(self.capacity, self.level + max(0.0, now - self.filled) * self.per_s)
        self.filled = now
        return max(0.0, needed - self.level) / self.per_s


class RateLimit:
    """0 is no limit. A minute's requests, or a second's tokens, may come at once.

    Of several gateways, which know nothing of each other's clients, each has an equal share: all together never let
    more pass than the limit says.
    """

    def __init__(self, requests_per_min: int, tokens_per_s: int, gateways: int = 1) -> None:
        self._requests_per_min = requests_per_min / gateways
        self._tokens_per_s = tokens_per_s / gateways
        self._where = f" at one of {gateways} gateways" if gateways > 1 else ""
        self._requests: dict[str | None, Bucket] = {}
        self._tokens: dict[str | None, Bucket] = {}

    def take_request(self, key: str | None, now: float) -> None:
        """Raises RateLimited, and then takes nothing. A key of None stands for all clients together."""
        if not self._requests_per_min:
            return
        bucket = _bucket_of(self._requests, key, self._requests_per_min, _REQUESTS_S, now)
        _refuse_for(bucket.wait_s(1.0, now), f"{self._requests_per_min:g} requests a minute{self._where}")
        bucket.level -= 1.0

    def take_tokens(self, key: str | None, tokens: int, now: float) -> None:
        """Taken as soon as the bucket is not empty, on credit if need be: no request is too large for ever. What it
        owes is waited for by those that follow."""
        if not self._tokens_per_s:
            return
        self.check_tokens(key, now)
        self._tokens[key].level -= tokens

    def check_tokens(self, key: str | None, now: float) -> None:
        """Raises RateLimited where not even the smallest request would be let in; takes nothing."""
        if not self._tokens_per_s:
            return
        bucket = _bucket_of(self._tokens, key, self._tokens_per_s, _TOKENS_S, now)
        wait_s = bucket.wait_s(min(1.0, bucket.capacity), now)
        _refuse_for(wait_s, f"{self._tokens_per_s:g} tokens a second{self._where}")


def _bucket_of(buckets: dict[str | None, Bucket], key: str | None, limit: float, over_s: float, now: float) -> Bucket:
    if key not in buckets:
        capacity = max(1.0, limit)  # a share of less than one request is one, more rarely
        buckets[key] = Bucket(capacity, limit / over_s, capacity, now)
    return buckets[key]


def _refuse_for(wait_s: float, rate: str) -> None:
    if wait_s > 0.0:
        raise RateLimited(f"more than {rate}: try again in {math.ceil(wait_s * 1000)} ms", retry_after_s=wait_s)
