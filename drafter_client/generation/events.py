"""What happens while a text is generated: one class for each event, and those who listen to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafters.base import Expansion
from speculation.acceptance.explain import Decision
from speculation.acceptance.round_counts import JudgedRound
from speculation.acceptance.token_source import TokenSource
from speculation.policy.schedule import Schedule
from speculation.policy.verifier_timeline import InFlightDraft
from speculation.protocol.prompt_progress import PromptProgress
from speculation.protocol.responses import GenerateResponse, PrefillResponse, VerifyResponse
from speculation.sampling.logprobs import TokenLogprobs


class RunEvent:
    """Something that happened to a text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ModeChosen(RunEvent):
    """The text, or its next stretch in mode `auto`, is generated in this mode, a `Mode` other than `auto`."""

    mode: str
    draft_model: str = ""  # empty: nothing is drafted, or the name is not known yet
    looks_up: bool = False  # whether the drafter looks all draft tokens up in the text


@dataclass(frozen=True, slots=True)
class ModelTaken(RunEvent):
    """The verifier's model is another one than when the text was asked for, or serves otherwise; the text goes on."""

    model: str
    context: int | None  # tokens that the context holds, if the text may need more; None: it needs fewer


@dataclass(frozen=True, slots=True)
class Began(RunEvent):
    """An attempt at the text began: the first one, the next after an outage, or another stretch."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class PromptRead(RunEvent):
    """The model has read a part of a long prompt."""

    progress: PromptProgress


@dataclass(frozen=True, slots=True)
class PromptCached(RunEvent):
    """So many tokens of the prompt were not read, as the verifier's KV cache of another text had them."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Opened(RunEvent):
    """The response to the prefill came, which was requested at `asked` (milliseconds on the run's clock)."""

    response: PrefillResponse
    asked: float


@dataclass(frozen=True, slots=True)
class Sent(RunEvent):
    """A verify request is about to be sent."""

    in_flight_draft: InFlightDraft
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Drafted(RunEvent):
    """A draft step ended. `onward`: whether the executor began the next one by itself, as `DraftStep.onward` allows.

    `took`: milliseconds, which the loop fills in, since an executor has no clock.
    """

    expansion: Expansion
    onward: bool = False
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered(RunEvent):
    """The response to a verify request arrived."""

    in_flight_draft: InFlightDraft
    response: VerifyResponse


@dataclass(frozen=True, slots=True)
class Streamed(RunEvent):
    """The event stream reported committed tokens, from `position` on, or the end of the text."""

    position: int
    tokens: list[int]
    sources: list[str]  # where each token came from, as a mark of `token_source`
    finish_reason: str | None
    forward_ms: float | None = None  # milliseconds of the verifier pass of the last token, if it was self-continuation
    decisions: list[Decision | None] | None = None  # one for each token, if requested
    logprobs: list[TokenLogprobs | None] | None = None  # as `decisions`


@dataclass(frozen=True, slots=True)
class Failed:
    """A thread of the executor failed: no event of the text, which raises the error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Committed(RunEvent):
    """Committed tokens in order from `position` on, each id with its token source.

    `decisions`, `logprobs`: one for each token, if requested. `schedule`: that of the pair, where a verify request or
    the event stream brought them. `mispredicted`: whether one of them is another than the drafter had predicted, and
    `next_draft_ready`, whether the next draft was ready all the same. `rounds`: those that committed the tokens, but
    for the prefill's pass and self-continuation.
    """

    position: int
    tokens: list[tuple[int, TokenSource]]
    decisions: list[Decision] | None = None
    schedule: Schedule | None = None
    mispredicted: bool = False
    next_draft_ready: bool = False
    rounds: Sequence[JudgedRound] = ()
    logprobs: list[TokenLogprobs] | None = None


@dataclass(frozen=True, slots=True)
class Served(RunEvent):
    """The request for a text that the verifier generates is over. `summary`: None if the response broke off."""

    summary: GenerateResponse | None


@dataclass(frozen=True, slots=True)
class Resumed(RunEvent):
    """The first tokens after an outage came, `generated` tokens after the prompt."""

    generated: int


@dataclass(frozen=True, slots=True)
class DraftingFailed(RunEvent):
    """The draft engine failed for this reason. The text went on without drafts."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended(RunEvent):
    """An attempt at the text, or a wait for a lost verifier, is over. `finish_reason`: None if the text has not ended.

    `bytes_sent`, `bytes_received`: of the attempt. `why`: in mode `auto`, what the mode selection was based on.
    """

    finish_reason: str | None
    bytes_sent: int = 0
    bytes_received: int = 0
    why: str = ""


Completion = Drafted | Answered | Streamed | Failed  # what an executor reports

# Takes an event and the time at which it came, in milliseconds on the run's clock. It is called from several threads,
# but never from two at once. The run waits for each call, so a listener has to be fast.
Listener = Callable[[RunEvent, float], None]


def to_all(*listeners: Listener) -> Listener:
    """Return a listener that hands each event to all of `listeners`, in their order."""

    def tell(event: RunEvent, now: float) -> None:
        for listener in listeners:
            listener(event, now)

    return tell


def prompt_reader(on_prompt: Callable[[PromptProgress], None]) -> Listener:
    """A listener that tells `on_prompt` how much of a prompt is read, and nothing else."""

    def listen(event: RunEvent, now: float) -> None:
        if isinstance(event, PromptRead):
            on_prompt(event.progress)

    return listen
