"""The endpoints that both ends serve to other programs' clients: OpenAI's, Anthropic's, and those for tokens.

Both register them and describe them in their OpenAPI documents. The examples were made with the small model that ships,
those of chats with a template of one line.
"""

from collections.abc import Iterable
from functools import partial

from fastapi import FastAPI

from gateway.anthropic_api.endpoints import MessageEndpoints
from gateway.anthropic_api.replies import EVENTS as MESSAGE_EVENTS
from gateway.anthropic_api.replies import FORM as MESSAGE_ERRORS
from gateway.anthropic_api.replies import MessageReply, TokenCount
from gateway.anthropic_api.requests import CountRequest, MessagesRequest
from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.messages import replies
from gateway.openai_api.messages.errors import FORM
from gateway.openai_api.messages.fields import EMPTY, TABLE
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from gateway.openai_api.responses.endpoints import ResponseEndpoints
from gateway.openai_api.responses.replies import EVENTS as RESPONSE_EVENTS
from gateway.openai_api.responses.replies import ResponseDeleted, ResponseObject
from gateway.openai_api.responses.requests import ResponseRequest
from gateway.openai_api.texts import TextSource
from gateway.openai_api.tokens import (
    AppliedTemplate,
    Detokenized,
    DetokenizeRequest,
    TokenEndpoints,
    TokenizeBody,
    TokenizeReply,
)
from specpair.http_service.openapi import operation
from specpair.http_service.openapi.operation import BODY, Errors, Json, Operation, parameter
from specpair.protocol import errors

_QUESTION: Json = {"messages": [{"role": "user", "content": "read a file"}]}
_COMPLETION: Json = {"prompt": "def main(", "max_tokens": 6, "temperature": 0.8, "seed": 7}
_COMPLETIONS: dict[str, Json] = {
    "text": _COMPLETION,
    "prompts as token ids, the likeliest tokens with log probabilities": {
        "prompt": [[0, 511, 2133, 9], [0, 511]],
        "max_tokens": 4,
        "temperature": 0,
        "logprobs": 2,
    },
    "stream": _COMPLETION | {"stream": True, "stream_options": {"include_usage": True}},
    "without drafts, as nothing else changes the time": _COMPLETION | {"speculative": {"mode": "off"}},
}
_CHATS: dict[str, Json] = {
    "question": {
        "messages": [{"role": "system", "content": "Answer with Python code."}, *_QUESTION["messages"]],
        "max_completion_tokens": 8,
        "temperature": 0.8,
        "seed": 7,
    },
    "stream": _QUESTION | {"max_tokens": 8, "stream": True},
}
_RESPONSE_ID = "resp_6c1f8f0c8f0a4f6d9a3b9c1d2e3f4a5b"
_PERSON: Json = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_RESPONSES: dict[str, Json] = {
    "question": {"instructions": "Answer with Python code.", "input": "read a file", "max_output_tokens": 8},
    "next question": {
        "input": "and close it",
        "previous_response_id": _RESPONSE_ID,
        "max_output_tokens": 8,
        "stream": True,
    },
    "JSON": {
        "input": [{"role": "user", "content": "a person"}],
        "max_output_tokens": 24,
        "text": {"format": {"type": "json_schema", "name": "person", "schema": _PERSON}},
    },
}
_ASKED = _QUESTION | {"system": "Answer with Python code."}
_MESSAGES: dict[str, Json] = {
    "question": _ASKED | {"max_tokens": 8, "temperature": 0.8},
    "stream": _ASKED | {"max_tokens": 8, "stop_sequences": ["\n\n"], "stream": True},
}
_TEXTS: dict[str, Json] = {
    "text": {"text": "def main("},
    "as to llama-server": {"content": "def main(", "add_special": True, "with_pieces": True},
    "as to vLLM": {"prompt": "def main(", "return_token_strs": True},
    "conversation": _QUESTION,
}
_NAME: Json = {"type": "string", "minLength": 1}
_MODEL_SAID = "The name that `/v1/models` lists. It may have slashes."
_MODEL = parameter("model", "path", _MODEL_SAID, _NAME, "stdlib-target-q8_0")
_RESPONSE = parameter("response_id", "path", "Id of a response that is kept.", _NAME, _RESPONSE_ID)


def text_operations(always: Errors, texts: Errors, encoding: Errors) -> tuple[Operation, ...]:
    """The operations; their endpoints are methods.

    The arguments are errors of the service: `always` of any request, `texts` of a text, `encoding` of one that encodes
    text without generating any.
    """
    body = (*always, *BODY, errors.UnknownModel, errors.PromptTooLong)
    prompt = (*body, errors.EmptyPrompt)
    conversation = (*prompt, errors.NoChatTemplate)
    generated: Errors = (errors.TokenOutOfRange, errors.ModeUnavailable, *texts)
    post = partial(Operation, "POST")
    openai = partial(Operation, tag="OpenAI's", form=FORM)
    anthropic = partial(Operation, "POST", tag="Anthropic's", form=MESSAGE_ERRORS)
    return (
        post(
            *("/tokenize", TokenEndpoints.tokenize, "model", TokenizeReply, (*conversation, *encoding)),
            request=TokenizeBody,
            examples=_TEXTS,
        ),
        post(
            *("/detokenize", TokenEndpoints.detokenize, "model", Detokenized),
            errors=(*body, errors.TokenOutOfRange, *encoding),
            request=DetokenizeRequest,
            examples={"tokens": {"tokens": [511, 2133, 9]}},
        ),
        post(
            *("/apply-template", TokenEndpoints.apply_template, "model", AppliedTemplate, (*conversation, *encoding)),
            request=ChatRequest,
            examples=_CHATS,
        ),
        openai(
            *("POST", "/v1/chat/completions", Endpoints.chat),
            response=replies.ChatCompletion,
            errors=(*conversation, *generated),
            request=ChatRequest,
            examples=_CHATS,
            chunk=replies.ChatChunk,
        ),
        openai(
            *("POST", "/v1/completions", Endpoints.complete),
            response=replies.Completion,
            errors=(*prompt, *generated),
            request=CompletionRequest,
            examples=_COMPLETIONS,
            chunk=replies.Completion,
        ),
        openai("GET", "/v1/models", Endpoints.list_models, response=replies.ModelList, errors=always),
        openai(
            *("GET", "/v1/models/{model:path}", Endpoints.retrieve_model),
            response=replies.Model,
            errors=(*always, errors.UnknownModel),
            parameters=(_MODEL,),
        ),
        openai(
            *("POST", "/v1/responses", ResponseEndpoints.create_response),
            response=ResponseObject,
            errors=(*conversation, *generated, errors.UnknownResponse),
            request=ResponseRequest,
            examples=_RESPONSES,
            events=tuple(RESPONSE_EVENTS.items()),
            last=("response.completed", "response.incomplete", "response.failed"),
        ),
        openai(
            *("GET", "/v1/responses/{response_id}", ResponseEndpoints.retrieve_response),
            response=ResponseObject,
            errors=(*always, errors.InvalidRequest, errors.UnknownResponse),
            parameters=(_RESPONSE,),
        ),
        openai(
            *("DELETE", "/v1/responses/{response_id}", ResponseEndpoints.delete_response),
            response=ResponseDeleted,
            errors=(*always, errors.UnknownResponse),
            parameters=(_RESPONSE,),
        ),
        anthropic(
            *("/v1/messages", MessageEndpoints.create_message),
            response=MessageReply,
            errors=(*conversation, *generated),
            request=MessagesRequest,
            examples=_MESSAGES,
            events=tuple(MESSAGE_EVENTS.items()),
            last=("message_stop", "error"),
        ),
        anthropic(
            *("/v1/messages/count_tokens", MessageEndpoints.count_tokens),
            response=TokenCount,
            errors=(*conversation, *texts),
            request=CountRequest,
            examples={"question": _ASKED},
        ),
    )


def add_to(app: FastAPI, operations: Iterable[Operation], endpoints: Endpoints, source: TextSource) -> None:
    """Register the operations. `source`: of the texts."""
    others = ResponseEndpoints(source, endpoints), MessageEndpoints(source, endpoints)
    operation.add_to(app, operations, endpoints, *others, TokenEndpoints(source, endpoints.prompts))


def refine(found: dict[str, Json]) -> None:
    """Add to the schemas the fields that are accepted but not used."""
    for name, beside in TABLE.items():
        schema = found[name]
        properties = schema["properties"]
        for field in beside.ignored:
            properties[field] = {"description": "Taken, without effect."}
        for field, values in beside.only.items():
            said = "Not supported: taken with a value that asks for nothing."
            properties[field] = {"enum": [None, *values], "description": said}
        for field in beside.hints:
            properties[field] = {"description": "A hint: taken without effect, and named in the reply's header."}
        for field, other in beside.also.items():
            properties[field] = {"description": f"Another name of `{other}`."}
        schema["additionalProperties"] = {"anyOf": [_exactly(value) for value in EMPTY]}


def _exactly(value: object) -> Json:
    """A schema of one value: null, false, or the empty string, list or object."""
    sizes: dict[type, tuple[str, str]] = {
        str: ("string", "maxLength"),
        list: ("array", "maxItems"),
        dict: ("object", "maxProperties"),
    }
    if (size := sizes.get(type(value))) is None:
        return {"const": value}
    return {"type": size[0], size[1]: 0}
