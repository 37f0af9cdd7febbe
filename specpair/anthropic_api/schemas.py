"""JSON Schema for the checks of OpenAI's and Anthropic's requests that are made in code."""

from specpair.anthropic_api.fields import TABLE
from specpair.http_service.openapi.operation import Json
from specpair.openai_api.openapi import schemas


def refine(found: dict[str, Json]) -> None:
    """Add the checks, and the fields that are taken beside those that are used, to the schemas."""
    schemas.refine(found)
    schemas.add_fields(found, TABLE)
