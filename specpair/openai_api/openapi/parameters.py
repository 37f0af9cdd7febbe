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
    }
}
