"""Rules that every limit shares: how much of it one client may take, and when a refused client should ask again."""

import math


def share_of_one_client(places: int) -> int:
    """How many of all `places` one client may take: three quarters. The rest is for other clients."""
    return places - places // 4


def retry_after(seconds: float) -> int:
    """The value of the header Retry-After for a wait of about `seconds`: whole seconds, at least 1."""
    return max(1, math.ceil(seconds))
