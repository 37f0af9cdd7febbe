"""A request of Anthropic's as one for a chat."""

import json
from typing import Any, NamedTuple

from gateway.anthropic_api.requests import (
    TEXT_FIELDS,
    Block,
    Conversation,
    CustomTool,
    CustomToolChoice,
    MessagesRequest,
    TextBlock,
    Thinking,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TurnMessage,
)
from gateway.openai_api.answers.answer import markers_of
from gateway.openai_api.messages.conversation import joined
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.translated import answer_of, chat_of, given
from specpair.protocol.errors import InvalidRequest

_NAMES = {
    "response_format": "output_config.format",
    "json_schema": "output_config.format.schema",
    "reasoning_effort": "output_config.effort",
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
}
USUAL_EFFORT = "high"  # asks for nothing: it is the same as none, so that a template need not know it
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
Json = dict[str, Any]


class MessagesChat(NamedTuple):
    """The chat of a request.

    `names`     of its parameters in the request
    `opening`   what the answer begins with, and goes on from
    `thinking`  whether the model is asked to think
    """

    chat: ChatRequest
    names: dict[str, str]
    opening: str
    thinking: Thinking | None

    def for_template(self, template: str | None) -> ChatRequest:
        """The chat with the variables for thoughts that a chat template has. Raises InvalidRequest if they are asked
        for, and it knows none."""
        if self.thinking is None or self.thinking.type == "adaptive":
            return self.chat
        thinks, shown, variables = self.thinking.type == "enabled", template or "", Json()
        if "enable_thinking" in shown:
            variables["chat_template_kwargs"] = {**(self.chat.chat_template_kwargs or {}), "enable_thinking": thinks}
        if "thinking_budget" in shown:
            variables["thinking_budget"] = self.thinking.budget_tokens if thinks else 0
        if thinks and not variables and markers_of(template) is None:
            raise InvalidRequest(
                "thinking: the chat template of this model knows no thoughts: leave it out, or send the type adaptive",
                param="thinking",
            )
        return self.chat.model_copy(update=variables)


def asked_of(request: Conversation) -> MessagesChat:
    """The chat of a request. Raises InvalidRequest, in the request's names."""
    system = joined(request.system, "\n\n")
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    origins = ["system"] if system else []
    tools: dict[str, str] = {}  # names by the ids of their calls
    last = request.messages[-1]
    opening = (last.text or "") if last.role == "assistant" else ""
    for at, message in enumerate(request.messages[:-1] if last.role == "assistant" else request.messages):
        made = _messages(message, tools)
        messages += made
        origins += [f"messages.{at}"] * len(made)
    config, choice = request.output_config, request.tool_choice
    effort = None if config is None else config.effort
    body: Json = {
        "model": request.model,
        "messages": messages,
        "tools": [_tool(each) for each in request.tools or ()],
        "tool_choice": None if choice is None else _choice(choice),
        "parallel_tool_calls": None if choice is None else not choice.disable_parallel_tool_use,
        "reasoning_effort": None if effort == USUAL_EFFORT else effort,
    }
    if config is not None and config.format is not None:
        body["response_format"] = {"type": "json_schema", "schema": config.format.schema_}
    if effort == USUAL_EFFORT:
        body["chat_template_kwargs"] = {"reasoning_effort": effort}
    if isinstance(request, MessagesRequest):
        body |= {"max_completion_tokens": request.max_tokens, "stop": request.stop_sequences}
        body |= given(request, TEXT_FIELDS)
    # The longest beginning of a path counts, and what is none of these has the same name.
    names = _NAMES | {f"messages.{at}": name for at, name in enumerate(origins)}
    names |= {f"tools.{at}.function": f"tools.{at}" for at in range(len(request.tools or ()))}
    names |= {f"tools.{at}.function.parameters": f"tools.{at}.input_schema" for at in range(len(request.tools or ()))}
    return MessagesChat(chat_of(body, names), names, opening, request.thinking)


def _tool(tool: CustomTool) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function | {"strict": tool.strict}}


def _choice(choice: CustomToolChoice) -> Any:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]


def _messages(message: TurnMessage, tools: dict[str, str]) -> list[Json]:
    """A message as those of a chat: what tools answered, and what the user says.

    `tools`: the names of tools by the ids of their calls, which are added.
    """
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    if message.role == "assistant":
        return [_answer(message.content, tools)]
    made = [_result(block, tools) for block in message.content if isinstance(block, ToolResultBlock)]
    said = [block for block in message.content if isinstance(block, TextBlock)]
    return [*made, {"role": message.role, "content": joined(said, "\n")}] if said or not made else made


def _result(block: ToolResultBlock, tools: dict[str, str]) -> Json:
    message = {"role": "tool", "tool_call_id": block.tool_use_id, "content": joined(block.content, "\n")}
    return message | ({"name": tools[block.tool_use_id]} if block.tool_use_id in tools else {})


def _answer(blocks: list[Block], tools: dict[str, str]) -> Json:
    text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    thoughts = "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))
    calls: list[Json] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            tools[block.id] = block.name
            function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
            calls.append({"id": block.id, "type": "function", "function": function})
    return answer_of(text, thoughts, calls)
