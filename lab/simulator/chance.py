"""Random numbers that have the same bits on every machine.

`random()` has them, and so have sums, products, quotients and square roots: IEEE 754 says how each is rounded. The last
bits of logarithms and exponentials differ between processors and between C libraries. Here both are rounded to 40 bits.
Where a value is so near to the middle of two such numbers that its last bits decide, `decimal` computes it, which
rounds correctly by definition.
"""

import math
import random
from collections.abc import Callable
from decimal import Context, Decimal

_BITS = 40  # of a result's mantissa; they say it to 12 digits
_SCALE = 2.0**_BITS
_DECIDED = (
    0.5 - 2.0**-10
)  # from the nearest number of so many bits, up to which 8 units of the last of 53 change nothing
_EXACT = Context(prec=30)


def log(value: float) -> float:
    """The natural logarithm of a number above 0."""
    return _rounded(math.log(value), lambda: float(_EXACT.ln(Decimal(value))))


def exp(value: float) -> float:
    """The exponential of a number."""
    return _rounded(math.exp(value), lambda: float(_EXACT.exp(Decimal(value))))


def _rounded(near: float, exact: Callable[[], float]) -> float:
    """A function's value rounded to `_BITS` bits.

    `near`: the value, up to a few units of its last bit. `exact`: computes it.
    """
    mantissa, exponent = math.frexp(near)
    scaled = mantissa * _SCALE
    whole = round(scaled)
    if abs(scaled - whole) > _DECIDED:
        mantissa, exponent = math.frexp(exact())
        whole = round(mantissa * _SCALE)
    return math.ldexp(whole, exponent - _BITS)


def exponential(rng: random.Random, mean: float) -> float:
    """A value of the exponential distribution."""
    return -log(1.0 - rng.random()) * mean


def log_normal(rng: random.Random, mean: float, deviation: float) -> float:
    """A value whose logarithm is normally distributed. `mean`, `deviation`: of the logarithm."""
    return exp(rng.normalvariate(mean, deviation))  # that is a quotient of two numbers: logarithms only accept it


def gamma(rng: random.Random, shape: float, scale: float) -> float:
    """A value of the gamma distribution, of mean `shape` times `scale` (Marsaglia and Tsang, "A simple method for
    generating gamma variables", 2000). `shape`: above 0."""
    if shape < 1.0:
        return gamma(rng, shape + 1.0, scale) * exp(log(1.0 - rng.random()) / shape)
    base = shape - 1.0 / 3.0
    slope = 1.0 / math.sqrt(9.0 * base)
    while True:
        normal = rng.normalvariate(0.0, 1.0)
        root = 1.0 + slope * normal
        cube = root * root * root
        if root > 0.0 and log(1.0 - rng.random()) < 0.5 * normal * normal + base * (1.0 - cube + log(cube)):
            return base * cube * scale
