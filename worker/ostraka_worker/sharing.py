"""How one worker is shared by several gateways: its credit, and what it can still give each. Pure: time comes in.

Each gateway that asks has an equal part of the credit, but at least one batch. Who has not asked for a moment leaves
its part to the others, and finds it when it asks again; until they have heard of that, a little more is held than the
credit says.
"""

import math

ASKED_S = 2.0
"""So long a gateway's part is kept for it after it last asked: a few heartbeats."""
REMEMBERED_S = 2.0
"""After so long, what a gateway has used of the worker's time counts a third."""


class Sharing:
    """`credit_tokens` is the most this worker wants to hold in all. Gateways are numbered from 0."""

    def __init__(self, credit_tokens: int, batch_tokens: int, gateways: int) -> None:
        self._credit_tokens = credit_tokens
        self._batch_tokens = batch_tokens
        self._asked_at = [-math.inf] * gateways
        self._used_s = [0.0] * gateways
        self._used_at = 0.0

    def asked(self, gateway: int, now: float) -> None:
        self._asked_at[gateway] = now

    def used(self, seconds: float, tokens: list[int], now: float) -> None:
        """A call ended, with so many tokens of each gateway."""
        faded = math.exp((self._used_at - now) / REMEMBERED_S)
        total = sum(tokens) or 1
        self._used_s = [
            before * faded + seconds * each / total for before, each in zip(self._used_s, tokens, strict=True)
        ]
        self._used_at = now

    def credit_of(self, gateway: int, now: float) -> int:
        whole = self._credit_tokens
        asking = self._count_asking(gateway, now)
        return whole if asking == 1 else max(min(whole, self._batch_tokens), whole // asking)

    def free_share(self, gateway: int, now: float) -> float:
        """Of this worker's time, what the gateway can have: what the others do not use, or its fair part at least."""
        faded = math.exp((self._used_at - now) / REMEMBERED_S)
        others_s = (sum(self._used_s) - self._used_s[gateway]) * faded
        return max(1.0 / self._count_asking(gateway, now), 1.0 - others_s / REMEMBERED_S)

    def _count_asking(self, gateway: int, now: float) -> int:
        """With this one."""
        return sum(each == gateway or now - at < ASKED_S for each, at in enumerate(self._asked_at))
