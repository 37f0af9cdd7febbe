"""OpenAI's endpoints as operations, which both services register and describe in their OpenAPI documents."""

from specpair.http_service.openapi.operation import BODY, Errors, Operation
from specpair.openai_api.endpoints import Endpoints
from specpair.openai_api.messages import replies, requests
from specpair.openai_api.messages.errors import FORM
from specpair.protocol import errors

_PROMPT: Errors = (errors.UnknownModel, errors.EmptyPrompt, errors.PromptTooLong, errors.TokenOutOfRange)


def openai_operations(always: Errors, texts: Errors) -> tuple[Operation, ...]:
    """The operations; their endpoints are methods of `Endpoints`.

    The arguments are errors of the service: `always` of any request, `texts` of a text.
    """
    asked = (*always, *BODY, *_PROMPT, errors.ModeUnavailable, *texts)
    return (
        Operation(
            "POST",
            "/v1/chat/completions",
            Endpoints.chat,
            "OpenAI's",
            replies.ChatCompletion,
            (*asked, errors.NoChatTemplate),
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
            asked,
            request=requests.CompletionRequest,
            chunk=replies.Completion,
            form=FORM,
        ),
        Operation("GET", "/v1/models", Endpoints.list_models, "OpenAI's", replies.Models, always, form=FORM),
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
