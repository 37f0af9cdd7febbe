"""Events of a text other than drafting and verifying: one class for each event."""

from collections.abc import Callable
from dataclasses import dataclass

from specpair.drafters.run.events import Answered as Answered
from specpair.drafters.run.events import Committed as Committed
from specpair.drafters.run.events import Completion as Completion
from specpair.drafters.run.events import Drafted as Drafted
from specpair.drafters.run.events import Failed as Failed
from specpair.drafters.run.events import Listener as Listener
from specpair.drafters.run.events import RunEvent as RunEvent
from specpair.drafters.run.events import Sent as Sent
from specpair.drafters.run.events import Streamed as Streamed
from specpair.drafters.run.events import to_all as to_all
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.responses import GenerateResponse, PrefillResponse
from specpair.speculation.drafting.composed_context import ContextRead


@dataclass(frozen=True, slots=True)
class ModeChosen(RunEvent):
    """The text, or its next stretch in mode `auto`, is generated in this mode, a `Mode` other than `auto`."""

    mode: str
    draft_model: str = ""  # empty: nothing is drafted, or the name is not known yet
    looks_up: bool = False  # whether the drafter looks all draft tokens up in the text


@dataclass(frozen=True, slots=True)
class VerifierTaken(RunEvent):
    """The verifier at this address, one of several, writes the text from here on."""

    address: str


@dataclass(frozen=True, slots=True)
class ModelTaken(RunEvent):
    """The verifier's model is another one than when the text was asked for, or serves otherwise; the text goes on."""

    model: str
    context: int | None  # tokens that the context holds, if the text may need more; None: it needs fewer


@dataclass(frozen=True, slots=True)
class VocabularyTaken(RunEvent):
    """The token ids of the text are of this vocabulary, the target's. It is the first event of a text of a pair."""

    vocabulary: Vocabulary


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
    """The number of prompt tokens that the verifier found in the KV cache of another text."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Opened(RunEvent):
    """The response to the prefill came, which was requested at `asked` (seconds on the run's clock)."""

    response: PrefillResponse
    asked: float


@dataclass(frozen=True, slots=True)
class Served(RunEvent):
    """The request for a text that the verifier generates is over. `summary`: None if the response broke off."""

    summary: GenerateResponse | None


@dataclass(frozen=True, slots=True)
class Waited(RunEvent):
    """A wait for a verifier that was away is over, after `seconds`. `first`: whether it is the first of its outage."""

    seconds: float
    first: bool


@dataclass(frozen=True, slots=True)
class Resumed(RunEvent):
    """The first tokens after an outage came, `generated` tokens after the prompt."""

    generated: int


@dataclass(frozen=True, slots=True)
class DraftContextRead(RunEvent):
    """What of the text the draft model had in its context when the text ended."""

    context: ContextRead


@dataclass(frozen=True, slots=True)
class DraftingFailed(RunEvent):
    """The draft engine failed for this reason. The text went on without drafts."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended(RunEvent):
    """An attempt at the text, or a wait for a lost verifier, is over.

    `finish_reason`: None if the text has not ended.
    `bytes_sent`, `bytes_received`: of the attempt.
    `why`: in mode `auto`, what the mode selection was based on.
    """

    finish_reason: str | None
    bytes_sent: int = 0
    bytes_received: int = 0
    why: str = ""


def prompt_reader(on_prompt: Callable[[PromptProgress], None]) -> Listener:
    """A listener that tells `on_prompt` how much of a prompt is read, and nothing else."""

    def listen(event: RunEvent, now: float) -> None:
        if isinstance(event, PromptRead):
            on_prompt(event.progress)

    return listen
