"""A request of a trace, and the error of a file that is no trace."""

from typing import NamedTuple


class BadTrace(ValueError):
    """A file is no trace of requests. The message names the file, the line, and what was expected there."""


class TracedRequest(NamedTuple):
    """A request as a trace has it.

    `seconds`: when it came, on the trace's own clock.
    `session`: of requests that continue one another; empty: not recorded.
    `tenant`: whose it was; empty: not recorded.
    """

    seconds: float
    input_tokens: int
    output_tokens: int
    session: str = ""
    tenant: str = ""
