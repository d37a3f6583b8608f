"""Weighted least squares with one unknown break: what the best step or ramp explains on top.

The model is y = b1*x1 + ... + bk*xk + g*h(t - tau) + noise, where h is a step or a ramp that begins
at tau. The known columns are made orthonormal once (Gram-Schmidt). What a candidate h shares with
them is then a sum over the rows after tau, so all candidates together cost a few passes over the
rows: running sums, no matrix is ever solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import NamedTuple

INDEPENDENT = 1e-4
"""A column is dropped when less than this share of its square is its own."""
ROUNDING_BLOCKS = 1.0
"""Nobody knows the mean of whole blocks better than this."""
Vector = Sequence[float]


class Scan(NamedTuple):
    """For each candidate break: the size of what begins there, and how sure that is."""

    size: list[float]
    """Blocks for a step, blocks an hour for a ramp."""
    own: list[float]
    """Share of the candidate that no known column explains; 0 = cannot be told from load."""
    score: list[float]
    """Size over its standard error, the noise taken from what this very model leaves over."""


class Sums(NamedTuple):
    """For each row, what a step after it has in common with all there is."""

    square: list[float]
    """With itself."""
    shares: list[list[float]]
    """With each vector of the basis."""
    left: list[float]
    """With the residual."""


@dataclass(frozen=True)
class Fit:
    """The known columns explained away; lists run over the rows, oldest first."""

    weights: list[float]
    basis: list[list[float]]
    residual: list[float]

    @cached_property
    def weighted(self) -> list[list[float]]:
        """The basis and the residual, each row by its weight once more."""
        return [list(map(mul, self.weights, u)) for u in (*self.basis, self.residual)]

    @cached_property
    def steps(self) -> Sums:
        """What both steps and ramps are made of."""
        square = _after(map(mul, self.weights, self.weights))
        *shares, left = map(_after, self.weighted)
        return Sums(square, shares, left)

    @property
    def freedom(self) -> int:
        """Degrees of freedom that a model with a break leaves."""
        return len(self.residual) - len(self.basis) - 1


def dot(a: Vector, b: Vector) -> float:
    """Inner product."""
    return float(sum(map(mul, a, b)))


def fit(columns: Sequence[Vector], y: Vector, weights: list[float]) -> Fit:
    """Explain *y* by *columns*, each row scaled by its weight (1 over its standard deviation)."""
    basis: list[list[float]] = []
    for column in columns:
        vector = list(map(mul, column, weights))
        square = dot(vector, vector)
        vector = _without(vector, basis)
        own = dot(vector, vector)
        if own > INDEPENDENT * square:
            norm = 1.0 / math.sqrt(own)
            basis.append([norm * v for v in vector])
    return Fit(weights, basis, _without(list(map(mul, y, weights)), basis))


def _without(vector: list[float], basis: Sequence[Vector]) -> list[float]:
    for unit in basis:
        share = dot(vector, unit)
        vector = [v - share * u for v, u in zip(vector, unit, strict=True)]
    return vector


def beyond(columns: Sequence[Vector], y: Vector, weights: Vector) -> list[float]:
    """What *columns* leave of *y* at every row, when rows of weight 0 have no say in it."""
    square = list(map(mul, weights, weights))
    units: list[list[float]] = []
    for column in columns:
        vector = _reduced(column, units, square)
        own = _inner(vector, vector, square)
        if own > INDEPENDENT * _inner(column, column, square):
            norm = 1.0 / math.sqrt(own)
            units.append([norm * v for v in vector])
    return _reduced(y, units, square)


def _reduced(vector: Vector, units: Sequence[Vector], square: Vector) -> list[float]:
    rest = list(vector)
    for unit in units:
        share = _inner(rest, unit, square)
        rest = [v - share * u for v, u in zip(rest, unit, strict=True)]
    return rest


def _inner(a: Vector, b: Vector, square: Vector) -> float:
    return dot(list(map(mul, a, b)), square)


def scan_steps(model: Fit) -> Scan:
    """A step between row i and row i + 1, for each i."""
    return _scan(model, model.steps)


def scan_ramps(model: Fit, hours: Vector) -> Scan:
    """A ramp that begins at row i, for each i."""
    weights, steps = model.weights, model.steps
    timed = list(map(mul, weights, hours))
    squares = zip(
        hours,
        steps.square,
        _after(map(mul, weights, timed)),
        _after(map(mul, timed, timed)),
        strict=True,
    )
    square = [s2 - t * (2.0 * s1 - t * s0) for t, s0, s1, s2 in squares]
    *shares, left = (
        [
            s1 - t * s0
            for t, s0, s1 in zip(hours, sums, _after(map(mul, hours, vector)), strict=True)
        ]
        for sums, vector in zip((*steps.shares, steps.left), model.weighted, strict=True)
    )
    return _scan(model, Sums(square, shares, left))


def _after(values: Iterable[float]) -> list[float]:
    """For each row, the sum over the rows after it."""
    sums = list(accumulate(reversed(list(values)), initial=0.0))
    return sums[-2::-1]


def _scan(model: Fit, sums: Sums) -> Scan:
    square, _, left = sums
    own = square
    for share in sums.shares:
        own = [o - s * s for o, s in zip(own, share, strict=True)]
    total, freedom = dot(model.residual, model.residual), max(1, model.freedom)
    least = ROUNDING_BLOCKS**2 * dot(model.weights, model.weights) / len(model.weights)
    size, score, ratio = [], [], []
    for rest, whole, product in zip(own, square, left, strict=True):
        if whole <= 0.0 or rest <= INDEPENDENT * whole:
            size.append(0.0)
            score.append(0.0)
            ratio.append(0.0)
            continue
        gain = product * product / rest
        noise = math.sqrt(max((total - gain) / freedom, least))
        size.append(product / rest)
        score.append(product / math.sqrt(rest) / noise)
        ratio.append(rest / whole)
    return Scan(size, ratio, score)


def lag1(model: Fit, candidate: Vector, size: float) -> float:
    """Lag-1 autocorrelation of what is left with the candidate in the model."""
    vector = _without(list(map(mul, candidate, model.weights)), model.basis)
    rest = [r - size * v for r, v in zip(model.residual, vector, strict=True)]
    square = dot(rest, rest)
    return dot(rest[1:], rest[:-1]) / square if square > 0 else 0.0
