"""What a model call takes one worker: a + b x + c x^2 seconds for x tokens, fitted to its calls as they come. Pure.

Least squares over the last calls, each weighing less than the one after it. How far off a call is bounds what it
weighs: one that was disturbed, or whose ends were read together, moves little; many that agree are soon believed. No
term is ever negative, and where calls are all of one size, the worker's own measurement decides between the terms.
"""

import math
from dataclasses import dataclass, field

UNIT_TOKENS = 256.0
"""A full call. In this unit the three columns, 1, x and x^2, are of like size."""
REMEMBERED = 0.95
"""Of a call's weight at the next one: the last twenty or so count."""
PRIOR_SHARES = (0.1, 0.9, 0.0)
"""Of a full call as the worker measured it: the call's own part, its tokens', their square's."""
PRIOR_WEIGHT = 0.05
"""Of that measurement, in calls; it is not forgotten."""
OUTLIER_SPREADS = 3.0
"""Further off than that, a call weighs less the further it is."""
SPREAD = 0.3
LEAST_SPREAD = 0.05
"""Usual distances of a call from its prediction, as a share of it."""
SPREAD_WEIGHT = 0.1
"""Of the newest call's distance in that usual one."""
TERMS = ((0, 1, 2), (0, 1), (1, 2), (0, 2), (1,), (0,), (2,))
"""Those that are fitted: all, or where one would be negative, fewer."""

Terms = tuple[float, float, float]


@dataclass(slots=True)
class CostModel:
    """`calls`: how many were seen. Before the first, the worker's own speed is all that is known. `_powers` and
    `_moments` are sums over the calls, of x^0 to x^4 and of seconds by x^0 to x^2."""

    calls: int = 0
    _prior: Terms = (0.0, 0.0, 0.0)
    _terms: Terms = (0.0, 0.0, 0.0)
    _powers: list[float] = field(default_factory=lambda: [0.0] * 5)
    _moments: list[float] = field(default_factory=lambda: [0.0] * 3)
    _spread: float = SPREAD

    def start(self, tokens_per_s: float) -> None:
        """As the worker measured itself."""
        if tokens_per_s > 0:
            self._expect(UNIT_TOKENS / tokens_per_s)

    def observe(self, tokens: int, seconds: float) -> None:
        if tokens <= 0 or seconds <= 0:
            return
        if not self.call_s(tokens):
            self._expect(seconds * UNIT_TOKENS / tokens)
        # Errors count as shares of what was expected at first: a share of the present prediction would weigh the calls
        # of a machine that became slower less than those before.
        weight = self._weigh(seconds / self.call_s(tokens) - 1) / _sum_up(self._prior, tokens) ** 2
        x = tokens / UNIT_TOKENS
        self._powers = [REMEMBERED * old + weight * x**power for power, old in enumerate(self._powers)]
        self._moments = [REMEMBERED * old + weight * seconds * x**power for power, old in enumerate(self._moments)]
        self.calls += 1
        self._terms = self._fit()

    def call_s(self, tokens: float) -> float:
        return _sum_up(self._terms, tokens)

    def speed(self, call_tokens: int) -> float:
        """Tokens a second in calls of that size; 0 while nothing is known."""
        seconds = self.call_s(call_tokens)
        return call_tokens / seconds if seconds > 0 else 0.0

    @property
    def terms_s(self) -> Terms:
        """Of a call, of a token, of a token squared."""
        call, linear, square = self._terms
        return call, linear / UNIT_TOKENS, square / UNIT_TOKENS**2

    def _expect(self, unit_s: float) -> None:
        call, linear, square = PRIOR_SHARES
        self._prior = (call * unit_s, linear * unit_s, square * unit_s)
        if not self.calls:
            self._terms = self._prior

    def _weigh(self, distance: float) -> float:
        far = abs(distance)
        weight = min(1.0, OUTLIER_SPREADS * self._spread / far) if far else 1.0
        self._spread = max(LEAST_SPREAD, self._spread + SPREAD_WEIGHT * (min(far, 10 * self._spread) - self._spread))
        return weight

    def _fit(self) -> Terms:
        """The least squares without negative terms: of all choices of terms that lead to none, the best."""
        ridge = PRIOR_WEIGHT / sum(self._prior) ** 2
        gram = [[self._powers[i + j] + (ridge if i == j else 0.0) for j in range(3)] for i in range(3)]
        moments = [moment + ridge * expected for moment, expected in zip(self._moments, self._prior, strict=True)]
        best, least = self._terms, math.inf
        for chosen in TERMS:
            found = _solve([[gram[i][j] for j in chosen] for i in chosen], [moments[i] for i in chosen])
            if min(found) < 0:
                continue
            # Where the gradient is zero, the squares that are left are less by the product of moments and terms.
            error = -sum(moments[i] * term for i, term in zip(chosen, found, strict=True))
            if error < least:
                by_place = dict(zip(chosen, found, strict=True))
                best, least = (by_place.get(0, 0.0), by_place.get(1, 0.0), by_place.get(2, 0.0)), error
            if len(chosen) == len(gram):
                break
        return best


def _sum_up(terms: Terms, tokens: float) -> float:
    x = tokens / UNIT_TOKENS
    return terms[0] + x * (terms[1] + x * terms[2])


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Of a positive definite matrix: no pivot is zero."""
    size = len(right)
    for row in range(size):
        for below in range(row + 1, size):
            factor = matrix[below][row] / matrix[row][row]
            right[below] -= factor * right[row]
            for column in range(row, size):
                matrix[below][column] -= factor * matrix[row][column]
    for row in reversed(range(size)):
        after = sum(matrix[row][column] * right[column] for column in range(row + 1, size))
        right[row] = (right[row] - after) / matrix[row][row]
    return right
