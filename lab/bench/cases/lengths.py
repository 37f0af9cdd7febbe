"""How long a text has to be for a number of tokens, by asking an endpoint to count: no vocabulary is known here."""

from collections.abc import Awaitable, Callable

_MOST_COUNTS = 12
_CHARACTERS = 4  # of a token, as a first guess


async def characters_for(tokens: int, count: Callable[[int], Awaitable[int]]) -> int:
    """The length in characters at which a text has `tokens` tokens, or as little less as was found with 12 counts.

    `count`: the tokens of the text of a length; they grow with it.

    1 where even that is too long, as in a chat whose template is long.
    """
    fits, fails = 0, None  # the longest that is known to fit, the shortest that is known not to
    at, before = _CHARACTERS * tokens, (0, 0)
    for _ in range(_MOST_COUNTS):
        found = await count(at)
        if found > tokens:
            fails = at
        else:
            fits = at
        if found == tokens or fails == fits + 1:
            break
        # What a chat's template adds does not grow with the text: the second guess is by the line through two counts.
        rise = found - before[1]
        a_token = (at - before[0]) / rise if rise else at / max(1, found)
        guess = at + round((tokens - found) * a_token)
        before = at, found
        beyond = fails if fails is not None else max(guess, fits + 1) + 1
        at = guess if fits < guess < beyond else (fits + beyond) // 2
    return max(fits, 1)
