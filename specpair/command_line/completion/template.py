"""Texts with gaps, written as `@name@`: shells have a use for all that Python's own templates are written with."""

import re
from collections.abc import Mapping


def fill(text: str, gaps: Mapping[str, str]) -> str:
    """The text with its gaps filled. Raises KeyError for a gap that is not in `gaps`."""
    return re.sub(r"@(\w+)@", lambda gap: gaps[gap[1]], text)
