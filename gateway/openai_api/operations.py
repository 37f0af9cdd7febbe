"""OpenAI's endpoints as operations, which both services register and describe in their OpenAPI documents."""

from gateway.openai_api.endpoints import Endpoints
from gateway.openai_api.messages import replies, requests
from gateway.openai_api.messages.errors import FORM
from specpair.http_service.openapi.operation import BODY, Errors, Operation
from specpair.protocol import errors

_PROMPT: Errors = (*BODY, errors.UnknownModel, errors.EmptyPrompt, errors.PromptTooLong)
CONVERSATION: Errors = (*_PROMPT, errors.NoChatTemplate)  # of any request with messages
GENERATED: Errors = (errors.TokenOutOfRange, errors.ModeUnavailable)  # of any text


def openai_operations(always: Errors, texts: Errors) -> tuple[Operation, ...]:
    """The operations; their endpoints are methods of `Endpoints`.

    The arguments are errors of the service: `always` of any request, `texts` of a text.
    """
    return (
        Operation(
            "POST",
            "/v1/chat/completions",
            Endpoints.chat,
            "OpenAI's",
            replies.ChatCompletion,
            (*always, *CONVERSATION, *GENERATED, *texts),
            request=requests.ChatRequest,
            chunk=replies.ChatChunk,
            form=FORM,
        ),
        Operation(
            "POST",
            "/v1/completions",
            Endpoints.complete,
            "OpenAI's",
            replies.Completion,
            (*always, *_PROMPT, *GENERATED, *texts),
            request=requests.CompletionRequest,
            chunk=replies.Completion,
            form=FORM,
        ),
        Operation("GET", "/v1/models", Endpoints.list_models, "OpenAI's", replies.ModelList, always, form=FORM),
        Operation(
            "GET",
            "/v1/models/{model:path}",
            Endpoints.retrieve_model,
            "OpenAI's",
            replies.Model,
            (*always, errors.UnknownModel),
            parameters=("model",),
            form=FORM,
        ),
    )
