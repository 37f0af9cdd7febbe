"""The endpoints for responses as operations, which both services register and describe in their OpenAPI documents."""

from gateway.openai_api.messages.errors import FORM
from gateway.openai_api.operations import CONVERSATION, GENERATED
from gateway.openai_api.responses.endpoints import ResponseEndpoints
from gateway.openai_api.responses.replies import EVENTS, ResponseDeleted, ResponseObject
from gateway.openai_api.responses.requests import ResponseRequest
from specpair.http_service.openapi.operation import Errors, Operation
from specpair.protocol import errors


def response_operations(always: Errors, texts: Errors) -> tuple[Operation, ...]:
    """The operations; their endpoints are methods of `ResponseEndpoints`.

    The arguments are errors of the service: `always` of any request, `texts` of a text.
    """
    path = "/v1/responses/{response_id}"
    return (
        Operation(
            "POST",
            "/v1/responses",
            ResponseEndpoints.create_response,
            "OpenAI's",
            ResponseObject,
            (*always, *CONVERSATION, *GENERATED, *texts, errors.UnknownResponse),
            request=ResponseRequest,
            events=tuple(EVENTS.items()),
            last=("response.completed", "response.incomplete", "response.failed"),
            form=FORM,
        ),
        Operation(
            "GET",
            path,
            ResponseEndpoints.retrieve_response,
            "OpenAI's",
            ResponseObject,
            (*always, errors.InvalidRequest, errors.UnknownResponse),
            parameters=("response_id",),
            form=FORM,
        ),
        Operation(
            "DELETE",
            path,
            ResponseEndpoints.delete_response,
            "OpenAI's",
            ResponseDeleted,
            (*always, errors.UnknownResponse),
            parameters=("response_id",),
            form=FORM,
        ),
    )
