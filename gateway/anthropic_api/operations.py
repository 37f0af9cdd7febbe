"""Anthropic's endpoints as operations, which both services register and describe in their OpenAPI documents."""

from gateway.anthropic_api.endpoints import MessageEndpoints
from gateway.anthropic_api.replies import EVENTS, FORM, MessageReply, TokenCount
from gateway.anthropic_api.requests import CountRequest, MessagesRequest
from gateway.openai_api.operations import CONVERSATION, GENERATED
from specpair.http_service.openapi.operation import Errors, Operation


def message_operations(always: Errors, texts: Errors) -> tuple[Operation, ...]:
    """The operations; their endpoints are methods of `MessageEndpoints`.

    The arguments are errors of the service: `always` of any request, `texts` of a text.
    """
    return (
        Operation(
            "POST",
            "/v1/messages",
            MessageEndpoints.create_message,
            "Anthropic's",
            MessageReply,
            (*always, *CONVERSATION, *GENERATED, *texts),
            request=MessagesRequest,
            events=tuple(EVENTS.items()),
            last=("message_stop", "error"),
            form=FORM,
        ),
        Operation(
            "POST",
            "/v1/messages/count_tokens",
            MessageEndpoints.count_tokens,
            "Anthropic's",
            TokenCount,
            (*always, *CONVERSATION, *texts),
            request=CountRequest,
            form=FORM,
        ),
    )
