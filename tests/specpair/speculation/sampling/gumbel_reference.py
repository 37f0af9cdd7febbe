"""A second implementation of `gumbel-1` from its specification: Python integers and 60 decimal digits, no NumPy."""

from decimal import Decimal, localcontext

WORD = 2**32
LANES = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


def permute(x: int, key: int = 0) -> int:
    x = (x ^ (x // 2**16)) * 0x7FEB352D % WORD
    x ^= key
    x = (x ^ (x // 2**15)) * 0x846CA68B % WORD
    return x ^ (x // 2**16)


def word53(seed: int, position: int, token: int, purpose: int = 0) -> int:
    """The 53-bit h of one token at one position."""
    keys = []
    for lane in LANES:
        state = lane
        for word in (seed % WORD, seed // WORD, position, purpose):
            state = (permute(state ^ word) + lane) % WORD
        keys.append(state)
    high = permute(token * 0x9E3779B9 % WORD ^ keys[0], keys[1])
    low = permute(high ^ keys[2], keys[3])
    return high * 2**21 + low // 2**11


def gumbel(h: int) -> Decimal:
    """The Gumbel noise of the 53-bit word h, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        u = (Decimal(h) + Decimal("0.5")) / 2**53
        return -((-(u.ln())).ln())
