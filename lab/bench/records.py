"""The records of `drafter bench`: the contract between the measurement and the readers of its results.

A run is a folder with two files. `run.json` says what was asked of whom, on which machine (`Run`). `records.jsonl` has
a line for each request (`MeasuredRequest`), in the order in which they ended. `record_files` reads and writes them.

`scheduled` and `started` are seconds since the run began; the pauses of an interrupted run count. `chunks` and `ended`
of a request are seconds since its `started`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from lab.bench.jobs import WARM_UP, PreparedCase

FORMAT = "specpair-bench-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """A reply's report of its draft tokens. None: the endpoint reports none.

    `drafted`, `accepted`: draft tokens that were judged, and those of them that were kept.
    `rounds`: passes of the target over a draft.
    """

    drafted: int
    accepted: int
    rounds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailure:
    """The reason why a request has no complete text.

    `kind`: `status` (an HTTP status of 400 or more), `unreachable`, `timeout`, `cut` (the stream ended early), `error`
        (an error within the stream), `protocol` (the reply is no stream of completions), `skipped` (not sent: an
        earlier turn of the conversation failed).
    `status`: of HTTP, where there was a reply.
    """

    kind: Literal["status", "unreachable", "timeout", "cut", "error", "protocol", "skipped"]
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """A request and when its tokens came. Requests of several sides with equal `pairing` asked for the same text.

    `repetition`, `index`: of the case, and of the request in it, both from 0. Requests for warming up have a repetition
        of -1 and belong to no figure.
    `stretch`: number of the stretch of load (`jobs.Stretch`) in which it ran. A repetition of a case is one of each
        side, or several, if sides take turns by requests or if the run was interrupted.
    `prompt`: name of its prompt in the case.
    `seed`: of its sampling.
    `scheduled`: when it was due by the case's arrivals, in seconds since the run began.
    `started`: when sending began, in seconds since the run began. Later than `scheduled` if the load was late.
    `chunks`: when each chunk with text (or part of a tool call) came, in seconds since `started`. A chunk may have
        several tokens.
    `ended`: when the reply was over or had failed, in seconds since `started`.
    `tokens_in`, `tokens_out`, `cached`: tokens of the prompt, of the text, and of the prompt's that the endpoint had in
        its cache, as the endpoint counts them (`usage`); None: it does not tell.
    `finish`: its finish reason.
    `text`: what was written (a tool call as JSON); None: the run keeps no texts. `text_hash` is of the same.
    """

    side: str
    case: str
    repetition: int
    index: int
    stretch: int
    prompt: str
    seed: int | None
    scheduled: float
    started: float
    chunks: tuple[float, ...] = ()
    ended: float
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached: int | None = None
    finish: str | None = None
    text: str | None = None
    text_hash: str | None = None
    speculation: Speculation | None = None
    failure: RequestFailure | None = None

    @property
    def is_warm_up(self) -> bool:
        return self.repetition == WARM_UP

    @property
    def pairing(self) -> tuple[str, int, int]:
        """The key shared by all sides: case, repetition, index."""
        return self.case, self.repetition, self.index

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token, from `started` to the first chunk with text; None: none came."""
        return 1000 * self.chunks[0] if self.chunks else None

    @property
    def latency_ms(self) -> float | None:
        """From `started` to the last chunk with text; None: none came."""
        return 1000 * self.chunks[-1] if self.chunks else None

    @property
    def itl_ms(self) -> float | None:
        """Inter-token latency, (latency - TTFT) / (tokens_out - 1): the mean over the tokens after the first.

        The mean ITL of a text is its TPOT, so this is the `inter_token_latency` of aiperf and the `tpot` of vLLM's
        benchmark. Several tokens in a chunk count as several.
        None: there are fewer than two tokens, or they are not counted.
        """
        if not self.chunks or self.tokens_out is None or self.tokens_out < 2:
            return None
        return 1000 * (self.chunks[-1] - self.chunks[0]) / (self.tokens_out - 1)

    @property
    def chunk_gaps_ms(self) -> list[float]:
        """Times between one chunk and the next: aiperf's inter-chunk latency, which vLLM's benchmark calls ITL."""
        return [1000 * (later - earlier) for earlier, later in zip(self.chunks, self.chunks[1:], strict=False)]

    @property
    def tokens_per_second(self) -> float | None:
        """tokens_out / latency; None: no time, or no count."""
        return self.tokens_out / self.chunks[-1] if self.tokens_out and self.chunks and self.chunks[-1] > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A named endpoint that is measured. Records hold no keys: `api_key_variable` names the variable with the key.

    `url`: its base, with `/v1` or whatever stands before `/completions`.
    `model`: as it is asked for. None: the first that the endpoint lists.
    `extra`: what is added to the body of each request.
    `price_per_hour`: of its machines, in any currency.
    `server`: what it tells of itself (`owned_by` of its model, header `server`).
    `may_lack`: whether to leave the side out where the endpoint refuses `extra`, in place of an error.
    """

    name: str
    url: str
    model: str | None = None
    api_key_variable: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    price_per_hour: float | None = None
    server: dict[str, str] = field(default_factory=dict)
    may_lack: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The plan of a run. A run resumed after an interruption has the same plan.

    `begun`: UTC, in ISO 8601. `begun_unix`: the same in seconds, the zero of the run's clock.
    `timeout`, `texts`: as the options of the command.
    `asked`: a hash of all that was asked for: a command with the same one goes on with the run.
    `machine`: of the client: `cpu`, `cores`, `memory_gib`, `system`, `python`.
    """

    sides: tuple[Side, ...]
    cases: tuple[PreparedCase, ...]
    repetitions: int
    warm_up: int
    seed: int
    begun: str
    begun_unix: float
    timeout: float = 600.0
    texts: bool = True
    asked: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    version: str = ""
    format: str = FORMAT


@dataclass(frozen=True, slots=True)
class Results:
    """A run with its records so far. `requests`: without the warm-up."""

    run: Run
    requests: Sequence[MeasuredRequest]

    @property
    def requests_wanted(self) -> int:
        """The number of requests in the whole run."""
        return len(self.run.sides) * self.run.repetitions * sum(case.requests for case in self.run.cases)

    @property
    def is_complete(self) -> bool:
        """Whether every request of the run was made."""
        return len(self.requests) == self.requests_wanted


def hash_of(text: str) -> str:
    """The hash by which texts are compared."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
