"""`gumbel-1`: the shared Gumbel noise that couples a drafter to a verifier without communication.

Each end draws the token `argmax_i(log p_i + G(seed, position, i))` from its own distribution `p` with the same noise
`G`. So the ends agree as often as exact samplers can without communication (Daliri, Musco, Suresh, "Coupling without
communication and drafter-invariant speculative decoding", arXiv 2408.07978).

The noise is counter-based: a pure function of (seed, absolute position, vocabulary id, purpose), made of
32-bit multiplies only, so that any device can compute it.

    mix(x)         x ^= x >> 16;  x *= 0x7FEB352D;  x ^= x >> 15;  x *= 0x846CA68B;  x ^= x >> 16   (mod 2**32)
    permute(x, k)  the same with x ^= k after the first multiply
    k0 … k3        s = lane; for each word w of (seed mod 2**32, seed div 2**32, position, purpose):
                   s = mix(s ^ w) + lane; lanes 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344  (mod 2**32)
    high word      permute(id * 0x9E3779B9 ^ k0, k1)
    low word       permute(high ^ k2, k3)
    h              high << 21 | low >> 11          (53 bits)
    u              (h + 1/2) / 2**53
    G              -log(-log u)                    (float64)

Purposes 1 to 3 need one uniform number at a position instead of noise for each id. They take h / 2**53 of id 0.

`u` can be so close to 1 that float64 rounds it to 1. With v = 1 - u = (2**53 - h - 1/2) / 2**53, which is exact near 0,
the same value is -log(-log1p(-v)). That form is used for the upper half.
"""

from enum import IntEnum
from math import exp, expm1, floor, log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NAME = "gumbel-1"
SEED_LIMIT = 1 << 53  # so that seeds survive JSON readers that hold numbers in float64

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2**32 / golden ratio: spreads consecutive ids over the whole word
# The two multipliers and shifts of "lowbias32", found by search for low avalanche bias (Wellons, hash-prospector).
_M1, _M2 = 0x7FEB352D, 0x846CA68B
_GOLDEN_BACK, _M1_BACK, _M2_BACK = (pow(factor, -1, 1 << 32) for factor in (_GOLDEN, _M1, _M2))
_LANES = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)  # fractional digits of pi, as constants that nobody chose

_ROUNDING = 1e-9  # far above the float64 rounding of scores and noise
_BLOCK = 1 << 14  # words processed at a time, so that they stay in the CPU cache and need no new memory


class Purpose(IntEnum):
    """The purpose of a draw. Different purposes at one position have independent noise."""

    TOKEN = 0  # a token of the target's distribution, or of the drafter's under the same noise
    DRAFT = 1  # a draft token from the distribution that is sent with it
    COIN = 2  # whether such a draft token is accepted
    RESIDUAL = 3  # the recovered token where it is rejected


class RowKey(NamedTuple):
    """Four 32-bit key words of one (seed, position, purpose)."""

    k0: int
    k1: int
    k2: int
    k3: int


def _permute_one(x: int, key: int) -> int:
    """`permute(x, key)`; with `key` 0 it is `mix(x)`."""
    x ^= x >> 16
    x = (x * _M1 & _MASK) ^ key
    x ^= x >> 15
    x = x * _M2 & _MASK
    return x ^ x >> 16


def row_key(seed: int, position: int, purpose: Purpose = Purpose.TOKEN) -> RowKey:
    """The key of the noise for the token at `position`; each `purpose` has noise of its own.

    `seed` is in [0, 2**53), `position` counts tokens from the start of the prompt, in [0, 2**32).
    Raises ValueError outside of those.
    """
    if not 0 <= seed < SEED_LIMIT:
        raise ValueError(f"seed must be in [0, 2**53), got {seed}")
    if not 0 <= position <= _MASK:
        raise ValueError(f"position must be in [0, 2**32), got {position}")
    words = (seed & _MASK, seed >> 32, position, int(purpose))
    keys = []
    for lane in _LANES:
        state = lane
        for word in words:
            state = (_permute_one(state ^ word, 0) + lane) & _MASK
        keys.append(state)
    return RowKey(*keys)


def high_words(
    key: RowKey,
    spread: NDArray[np.uint32],
    out: NDArray[np.uint32] | None = None,
    scratch: NDArray[np.uint32] | None = None,
) -> NDArray[np.uint32]:
    """First 32 bits of the hash of many ids; `spread` is `spread_ids(ids)`, uint32 of any shape.

    `out` receives the result and `scratch` is overwritten, both uint32 of that shape; allocated where not given.
    """
    words = np.bitwise_xor(spread, np.uint32(key.k0), out=out)
    return _permute(words, key.k1, np.empty_like(spread) if scratch is None else scratch)


def spread_ids(ids: NDArray[np.integer]) -> NDArray[np.uint32]:
    """`id * golden mod 2**32`, the input of `high_words`. Worth caching for a whole vocabulary."""
    return ids.astype(np.uint32) * np.uint32(_GOLDEN)


def _permute(x: NDArray[np.uint32], key: int, scratch: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """`_permute_one` in place over an array."""
    np.right_shift(x, np.uint32(16), out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.multiply(x, np.uint32(_M1), out=x)
    np.bitwise_xor(x, np.uint32(key), out=x)
    np.right_shift(x, np.uint32(15), out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.multiply(x, np.uint32(_M2), out=x)
    np.right_shift(x, np.uint32(16), out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    return x


def gumbel(key: RowKey, ids: NDArray[np.integer]) -> NDArray[np.float64]:
    """Gumbel(0, 1) noise for each of `ids` (any shape), float64 of the same shape."""
    high = high_words(key, spread_ids(ids))
    low = _permute(high ^ np.uint32(key.k2), key.k3, np.empty_like(high))
    return gumbel_of((high.astype(np.uint64) << np.uint64(21)) | (low >> np.uint32(11)).astype(np.uint64))


def gumbel_one(key: RowKey, token: int) -> float:
    """`gumbel` of one id in plain Python, in a tenth of the time of array calls on one element."""
    h = _word_of_one(key, token)
    if h < 1 << 52:
        return -log(-log((h + 0.5) * 2.0**-53))
    return -log(-log1p(-(((1 << 53) - 1 - h) + 0.5) * 2.0**-53))


def uniform(key: RowKey, token: int = 0) -> float:
    """The 53-bit word of one id as a number in [0, 1): h / 2**53, which is exact."""
    return _word_of_one(key, token) * 2.0**-53


def _word_of_one(key: RowKey, token: int) -> int:
    """The 53-bit word h of one id."""
    high = _permute_one(token * _GOLDEN & _MASK ^ key.k0, key.k1)
    return high << 21 | _permute_one(high ^ key.k2, key.k3) >> 11


def gumbel_of(h: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Gumbel noise of 53-bit words `h`, uint64; float64 of the same shape, always finite."""
    below = h.astype(np.float64) + 0.5
    above = (np.uint64((1 << 53) - 1) - h).astype(np.float64) + 0.5
    scale = 2.0**-53
    exponential = np.where(h < 1 << 52, -np.log(below * scale), -np.log1p(-np.minimum(above, 2.0**52) * scale))
    return np.asarray(-np.log(exponential))


def least_high(reached: float) -> int:
    """The least high word whose noise can be `reached` or more; 2**32 where no noise can.

    G >= g means 1 - u <= 1 - exp(-exp(-g)), and 1 - u lies above (2**32 - 1 - high) / 2**32. Rounded so that no
    word is missed, also where scores that differ by float64 rounding are compared.
    """
    if reached < -4.0:  # the least noise is -3.63
        return 0
    v = -expm1(-exp(_ROUNDING - reached))
    if v < 2.0**-54:
        return 1 << 32
    return max(0, _MASK - floor(v * 2.0**32))


def ids_from(key: RowKey, least: int, size: int) -> NDArray[np.int64]:
    """The ids below `size` whose high word is at least `least` (0 to 2**32), ascending, int64.

    `permute` is one-to-one. So inverting it for few words is faster than computing the words of all ids.
    """
    count = (1 << 32) - least
    found = [np.empty(0, np.uint32)]
    for start in range(0, min(count, size), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, count, size), dtype=np.uint32)
        if count > size:
            found.append(block[high_words(key, spread_ids(block)) >= np.uint32(least)])
        else:
            block += np.uint32(least)
            ids = _ids_of(key, block)
            found.append(ids[ids < size])
    return np.sort(np.concatenate(found)).astype(np.int64)


def _ids_of(key: RowKey, high: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The id of each high word; `high` is overwritten."""
    x, scratch = high, np.empty_like(high)
    np.right_shift(x, np.uint32(16), out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.multiply(x, np.uint32(_M2_BACK), out=x)
    np.right_shift(x, np.uint32(15), out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.right_shift(scratch, np.uint32(15), out=scratch)  # x ^ x >> 15 is undone by x ^ x >> 15 ^ x >> 30
    np.bitwise_xor(x, scratch, out=x)
    np.bitwise_xor(x, np.uint32(key.k1), out=x)
    np.multiply(x, np.uint32(_M1_BACK), out=x)
    np.right_shift(x, np.uint32(16), out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.bitwise_xor(x, np.uint32(key.k0), out=x)
    np.multiply(x, np.uint32(_GOLDEN_BACK), out=x)
    return x
