"""The base of writers whose answers are blocks, one after the other: text, thoughts, calls of tools."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gateway.openai_api.answer import AnswerReason
from gateway.openai_api.generation import TextGeneration, Writer
from gateway.openai_api.messages.conversation import ChatMessage, Function, ToolCall
from gateway.openai_api.messages.replies import TokenLogprob
from gateway.openai_api.messages.requests import answer_of
from gateway.openai_api.output import Delta
from gateway.openai_api.tools.free_text import TEXT_ARGUMENT
from gateway.openai_api.tools.reader import ArgumentsGrew, CallBegan, CallEnded, Content, Thought
from gateway.openai_api.writers import call_id, token_logprobs

Kind = Literal["text", "thoughts", "call", "free call"]
CALLS = ("call", "free call")


@dataclass(slots=True)
class Block:
    """A block so far. In a call, `text` is the JSON text of the arguments, or a free text."""

    kind: Kind
    id: str = ""  # of a call, as the name is
    name: str = ""
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def arguments(self) -> str | dict[str, str]:
        """Of a call, as the model sees them."""
        return {TEXT_ARGUMENT: self.text} if self.kind == "free call" else self.text


class BlockStep(NamedTuple):
    """What happens to the block number `at`: it begins, grows by `text`, or ends."""

    what: Literal["begin", "grow", "end"]
    at: int
    block: Block
    text: str = ""
    logprobs: Sequence[TokenLogprob] = ()


class BlockWriter(Writer):
    """Writes one answer in an API whose answers are blocks; see `Writer`."""

    def __init__(self, generation: TextGeneration, logprobs: bool = False) -> None:
        """`logprobs`: whether log probabilities are reported."""
        super().__init__(generation)
        self._logprobs = logprobs
        self.blocks: list[Block] = []
        self.reason: AnswerReason | None = None  # why the answer has ended

    def take(self, at: int, delta: Delta, reason: AnswerReason | None) -> Iterator[bytes]:
        for step in self._steps(delta, reason):
            yield from self.events(step)

    def keep(self, at: int, delta: Delta, reason: AnswerReason | None) -> None:
        for _ in self._steps(delta, reason):
            pass

    @abstractmethod
    def events(self, step: BlockStep) -> Iterable[bytes]:
        """The events of a step."""

    def _steps(self, delta: Delta, reason: AnswerReason | None) -> Iterator[BlockStep]:
        """The steps of the blocks. Log probabilities come with the last step."""
        self.reason = reason or self.reason
        tokens = delta.tokens if self._logprobs else []
        logprobs = token_logprobs(self.generation.spec.vocabulary, tokens)
        told = [event for event in delta.events if not isinstance(event, CallEnded)]
        for event in told:
            of_it = logprobs if event is told[-1] else []
            match event:
                case Content(text):
                    yield from self._grow("text", text, of_it)
                case Thought(text):
                    yield from self._grow("thoughts", text)
                case CallBegan(_, name, free):
                    yield from self._add_logprobs(of_it)
                    yield from self.ended()
                    yield self._begin(Block("free call" if free else "call", call_id(), name))
                case ArgumentsGrew(_, text):
                    yield from self._grow(self.blocks[-1].kind, text)
        if not told:
            yield from self._add_logprobs(logprobs)

    def ended(self) -> Iterator[BlockStep]:
        """The end of the last block, since another begins or the answer ended."""
        if self.blocks:
            yield BlockStep("end", len(self.blocks) - 1, self.blocks[-1])

    def begin_text(self) -> Iterator[BlockStep]:
        """An empty text block, for an answer without any block."""
        yield self._begin(Block("text"))

    def message(self) -> ChatMessage:
        """The answer as a message of a conversation."""
        text, thoughts = (
            "".join(block.text for block in self.blocks if block.kind == kind) for kind in ("text", "thoughts")
        )
        calls = [
            ToolCall(id=block.id, function=Function(name=block.name, arguments=block.arguments))
            for block in self.blocks
            if block.kind in CALLS
        ]
        return ChatMessage(**answer_of(text, thoughts, calls))

    def _add_logprobs(self, logprobs: Sequence[TokenLogprob]) -> Iterator[BlockStep]:
        """Log probabilities of tokens without text, if the last block is a text."""
        if logprobs and self.blocks and self.blocks[-1].kind == "text":
            yield from self._grow("text", "", logprobs)

    def _grow(self, kind: Kind, text: str, logprobs: Sequence[TokenLogprob] = ()) -> Iterator[BlockStep]:
        if not self.blocks or self.blocks[-1].kind != kind:
            yield from self.ended()
            yield self._begin(Block(kind))
        block = self.blocks[-1]
        block.text += text
        block.logprobs += logprobs
        yield BlockStep("grow", len(self.blocks) - 1, block, text, logprobs)

    def _begin(self, block: Block) -> BlockStep:
        self.blocks.append(block)
        return BlockStep("begin", len(self.blocks) - 1, block)
