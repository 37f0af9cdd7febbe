"""The blocks of an answer, one after the other: text, thoughts, calls of tools. Read from the chunks of a chat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gateway.openai_api.messages.conversation import ChatMessage, Function, ToolCall
from gateway.openai_api.messages.replies import ChatChunk, Metrics, Reply, SpecDecode, Timings, TokenUsage
from gateway.openai_api.messages.replies import TokenLogprob as Logprob

Kind = Literal["text", "thoughts", "call"]


@dataclass(slots=True)
class Block:
    """A block as far as it is known. `text` is that of the arguments in a call."""

    kind: Kind
    id: str = ""  # of a call, as the name is
    name: str = ""
    text: str = ""
    logprobs: list[Logprob] = field(default_factory=list)


class BlockStep(NamedTuple):
    """What happens to the block number `at`: it begins, grows by `text`, or ends."""

    what: Literal["begin", "grow", "end"]
    at: int
    block: Block
    text: str = ""
    logprobs: Sequence[Logprob] = ()


class Blocks:
    """The blocks, and how the answer ended: its reason, and what was counted."""

    def __init__(self) -> None:
        self.all: list[Block] = []
        self.reason: str | None = None
        self.usage: TokenUsage | None = None
        self.statistics: dict[str, Timings | SpecDecode | Metrics] = {}

    def take(self, chunk: Reply) -> Iterator[BlockStep]:
        """Take in a chunk of the chat. The last one has the usage."""
        assert isinstance(chunk, ChatChunk)
        for choice in chunk.choices:
            delta = choice.delta
            logprobs = [] if choice.logprobs is None else choice.logprobs.content
            if delta.reasoning_content:
                yield from self._grow("thoughts", delta.reasoning_content)
            if delta.content or (logprobs and self.all and self.all[-1].kind == "text"):
                yield from self._grow("text", delta.content or "", logprobs)
            for call in delta.tool_calls or ():
                if call.id is not None:
                    yield from self.end()
                    yield self._begin(Block("call", call.id, call.function.name or ""))
                if call.function.arguments:
                    yield from self._grow("call", call.function.arguments)
            self.reason = choice.finish_reason or self.reason
        if chunk.usage is not None:
            self.usage = chunk.usage
            told = {"timings": chunk.timings, "spec_decode": chunk.spec_decode, "metrics": chunk.metrics}
            self.statistics = {name: each for name, each in told.items() if each is not None}

    def end(self) -> Iterator[BlockStep]:
        """The end of the last block, as another one begins or all chunks are taken in."""
        if self.all:
            yield BlockStep("end", len(self.all) - 1, self.all[-1])

    def begin_text(self) -> Iterator[BlockStep]:
        """An empty text, for an answer that has to have a block."""
        yield self._begin(Block("text"))

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of thoughts."""
        return 0 if self.usage is None else self.usage.completion_tokens_details.reasoning_tokens

    def message(self) -> ChatMessage:
        """The answer as a message of a conversation."""
        text, thoughts = (
            "".join(block.text for block in self.all if block.kind == kind) for kind in ("text", "thoughts")
        )
        calls = [
            ToolCall(id=block.id, function=Function(name=block.name, arguments=block.text))
            for block in self.all
            if block.kind == "call"
        ]
        return ChatMessage(**answer_of(text, thoughts, calls))

    def _grow(self, kind: Kind, text: str, logprobs: Sequence[Logprob] = ()) -> Iterator[BlockStep]:
        if not self.all or self.all[-1].kind != kind:
            yield from self.end()
            yield self._begin(Block(kind))
        block = self.all[-1]
        block.text += text
        block.logprobs += logprobs
        yield BlockStep("grow", len(self.all) - 1, block, text, logprobs)

    def _begin(self, block: Block) -> BlockStep:
        self.all.append(block)
        return BlockStep("begin", len(self.all) - 1, block)


def answer_of(text: str, thoughts: str, calls: Sequence[Any]) -> dict[str, Any]:
    """The fields of an answer as a message of a chat, without what is not there: templates get what is set."""
    beside = {"reasoning_content": thoughts, "tool_calls": calls}
    content = text or (None if calls else "")
    return {"role": "assistant", "content": content} | {name: each for name, each in beside.items() if each}
