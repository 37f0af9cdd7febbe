"""The events of a response, in the order of their names here."""

from typing import Annotated

from pydantic import Field

from gateway.openai_api.messages.replies import Reply, TokenLogprob
from gateway.openai_api.responses.objects import OutputItem, OutputText, OutputThoughts, ResponseObject

OutputIndex = Annotated[int, Field(description="Which item of the output, from 0.")]
ContentIndex = Annotated[int, Field(description="Always 0.")]
ItemId = Annotated[str, Field(description="The item's id.")]


class _Event(Reply):
    type: Annotated[str, Field(description="The name of the event.")]
    sequence_number: Annotated[int, Field(description="Which event of the stream, from 0.")]


class ResponseEvent(_Event):
    """The response, when it begins and when it has ended."""

    response: ResponseObject


class ItemEvent(_Event):
    """An item of the output, when it begins and when it has ended."""

    output_index: OutputIndex
    item: Annotated[OutputItem, Field(description="The item.")]


class PartEvent(_Event):
    """The text in an item, when it begins and when it has ended."""

    item_id: ItemId
    output_index: OutputIndex
    content_index: ContentIndex
    part: Annotated[OutputText | OutputThoughts, Field(description="The text.")]


class DeltaEvent(_Event):
    """What a text or the arguments of a call have grown by."""

    item_id: ItemId
    output_index: OutputIndex
    content_index: Annotated[int | None, Field(description="Always 0; not in a call.")] = None
    delta: Annotated[str, Field(description="What is new.")]
    logprobs: Annotated[list[TokenLogprob] | None, Field(description="With a text: those of the new tokens.")] = None


class DoneEvent(_Event):
    """A text or the arguments of a call, when they have ended."""

    item_id: ItemId
    output_index: OutputIndex
    content_index: Annotated[int | None, Field(description="Always 0; not in a call.")] = None
    text: Annotated[str | None, Field(description="The whole text.")] = None
    logprobs: Annotated[list[TokenLogprob] | None, Field(description="With a text: those of all tokens.")] = None
    name: Annotated[str | None, Field(description="Of the tool that is called.")] = None
    arguments: Annotated[str | None, Field(description="The whole arguments of a call.")] = None


EVENTS: dict[str, type[Reply]] = {
    "response.created": ResponseEvent,
    "response.in_progress": ResponseEvent,
    "response.output_item.added": ItemEvent,
    "response.content_part.added": PartEvent,
    "response.reasoning_text.delta": DeltaEvent,
    "response.reasoning_text.done": DoneEvent,
    "response.output_text.delta": DeltaEvent,
    "response.output_text.done": DoneEvent,
    "response.function_call_arguments.delta": DeltaEvent,
    "response.function_call_arguments.done": DoneEvent,
    "response.content_part.done": PartEvent,
    "response.output_item.done": ItemEvent,
    "response.completed": ResponseEvent,
    "response.incomplete": ResponseEvent,
    "response.failed": ResponseEvent,
}
