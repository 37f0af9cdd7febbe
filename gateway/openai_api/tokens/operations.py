"""The endpoints for tokens as operations, which both services register and describe in their OpenAPI documents."""

from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.tokens.endpoints import TokenEndpoints
from gateway.openai_api.tokens.messages import (
    AppliedTemplate,
    Detokenized,
    DetokenizeRequest,
    TokenizeBody,
    TokenizeReply,
)
from specpair.http_service.openapi.operation import BODY, Errors, Operation
from specpair.protocol import errors


def token_operations(always: Errors, encoding: Errors) -> tuple[Operation, ...]:
    """The operations; their endpoints are methods of `TokenEndpoints`.

    The arguments are errors of the service: `always` of any request, `encoding` of one that encodes text.
    """
    asked = (*always, *BODY, errors.UnknownModel, errors.PromptTooLong)
    chat = (errors.EmptyPrompt, errors.NoChatTemplate)
    return (
        Operation(
            "POST",
            "/tokenize",
            TokenEndpoints.tokenize,
            "model",
            TokenizeReply,
            (*asked, *chat, *encoding),
            request=TokenizeBody,
        ),
        Operation(
            "POST",
            "/detokenize",
            TokenEndpoints.detokenize,
            "model",
            Detokenized,
            (*asked, errors.TokenOutOfRange, *encoding),
            request=DetokenizeRequest,
        ),
        Operation(
            "POST",
            "/apply-template",
            TokenEndpoints.apply_template,
            "model",
            AppliedTemplate,
            (*asked, *chat, *encoding),
            request=ChatRequest,
        ),
    )
