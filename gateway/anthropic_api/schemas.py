"""JSON Schema for the checks of OpenAI's and Anthropic's requests that are made in code."""

from gateway.anthropic_api.fields import TABLE
from gateway.openai_api.openapi import schemas
from specpair.http_service.openapi.operation import Json


def refine(found: dict[str, Json]) -> None:
    """Add the checks, and the fields that are taken beside those that are used, to the schemas."""
    schemas.refine(found)
    schemas.add_fields(found, TABLE)
