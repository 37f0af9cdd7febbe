"""The parameters of OpenAI's endpoints that are no part of a body."""

from specpair.http_service.openapi.operation import Json

PARAMETERS: dict[str, Json] = {
    "model": {
        "name": "model",
        "in": "path",
        "required": True,
        "description": "The name that `/v1/models` lists. It may have slashes.",
        "schema": {"type": "string", "minLength": 1},
        "example": "stdlib-target-q8_0",
    },
    "response_id": {
        "name": "response_id",
        "in": "path",
        "required": True,
        "description": "Id of a response that is kept.",
        "schema": {"type": "string", "minLength": 1},
        "example": "resp_6c1f8f0c8f0a4f6d9a3b9c1d2e3f4a5b",
    },
}
