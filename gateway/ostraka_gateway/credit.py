"""What one gateway may have at a worker at a time, and what has how much of it. Pure.

    short ones, up to half the credit each   their tokens
    all long ones together                   the other half, so that shorter ones fit beside them
    one that is to run alone                 all of it

Of each size of long ones a worker is given one at a time: it reads them one by one, in turns with the other sizes.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from ostraka_shared.reading_rules import LARGEST_SIZE, size_of


@dataclass(slots=True)
class Credit:
    """`tokens`: what the worker says it wants to hold; it may change while some of it is claimed."""

    tokens: int = 0
    _claims: dict[str, int] = field(default_factory=dict)
    _claimed: list[int] = field(default_factory=lambda: [0] * (LARGEST_SIZE + 1))
    _long: dict[str, int] = field(default_factory=dict)
    _alone: str = ""

    @property
    def claimed(self) -> int:
        return sum(self._claimed)

    def claimed_up_to(self, size: int) -> int:
        """By those of that size, and by smaller ones."""
        return sum(self._claimed[: size + 1])

    @property
    def long_sizes(self) -> Collection[int]:
        return self._long.values()

    def size_of(self, tokens: int) -> int:
        """0 for a short one."""
        return size_of(tokens, self.tokens // 2)

    def has_room(self, tokens: int) -> bool:
        """Whatever its size, where nothing is claimed."""
        if not self._claims:
            return True
        is_next = not self.has_one_as_long(tokens)
        return is_next and not self._alone and self.claimed + self._claim_of(tokens) <= self.tokens

    def has_one_as_long(self, tokens: int) -> bool:
        """There is no room before that one's end, however much is given back."""
        return self.size_of(tokens) in self._long.values()

    def claim(self, request_id: str, tokens: int, *, is_alone: bool = False) -> None:
        claim, size = self._claim_of(tokens), self.size_of(tokens)
        if is_alone:
            self._alone, claim = request_id, self.tokens
        self._claims[request_id] = claim = max(0, min(claim, self.tokens - self.claimed))
        self._claimed[size] += claim
        if size:
            self._long[request_id] = size

    def give_back(self, request_id: str) -> None:
        self._claimed[self._long.pop(request_id, 0)] -= self._claims.pop(request_id, 0)
        if self._alone == request_id:
            self._alone = ""

    def _claim_of(self, tokens: int) -> int:
        if not self.size_of(tokens):
            return tokens
        return 0 if self._long else self.tokens - self.tokens // 2
