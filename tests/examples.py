"""How many examples property tests draw: few in `make coverage`, many in `make test-slow`."""

from hypothesis import settings

USUAL = 50
PROFILES = {"repo": USUAL, "few": USUAL // 5, "many": 8 * USUAL}


def examples(usual: int) -> settings:
    """The settings of a test that draws another number of examples than others: `usual` in `make test`."""
    return settings(max_examples=max(1, usual * settings().max_examples // USUAL))
