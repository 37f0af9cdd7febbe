"""The shipped pair keeps to grammars of many tokens an answer: the same text in every mode, and valid."""

import json
import re
from typing import Any

import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from models import DEFAULT_DRAFT
from specpair.speculation.acceptance.token_details import TokenSource
from tests.drafter_client.support import running
from tests.end_to_end.reference import CONTEXT
from verifier_server.settings import Settings

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "function_name": {"type": "string", "pattern": "^[a-z_]{1,12}$"},
        "arguments": {"type": "array", "items": {"$ref": "#/$defs/argument"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["function_name", "arguments"],
    "additionalProperties": False,
    "$defs": {
        "argument": {
            "type": "object",
            "properties": {
                "name": {"enum": ["self", "größe", "x"]},
                "default": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
            },
            "required": ["name", "default"],
            "additionalProperties": False,
        }
    },
}

GRAMMARS: list[dict[str, Any]] = [{"json_schema": SCHEMA}, {"regex": r"def [a-z]{1,8}\(self\):\n    return [0-9]{1,3}"}]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_same_seed_gives_the_same_json_in_every_mode(temperature: float) -> None:
    settings = Settings(slots=2, context=CONTEXT, threads=1, draft_model=DEFAULT_DRAFT, draft_threads=1)
    with running(settings) as verifier, Pair(verifier.url, DraftModel()) as pair:
        for seed, grammar in enumerate(GRAMMARS):
            done = {
                mode: pair.generate(
                    "class Stack:\n", Options(max_tokens=120, temperature=temperature, seed=seed, mode=mode, **grammar)
                ).read()
                for mode in (Mode.TARGET, Mode.REMOTE, Mode.FUSED)
            }
            assert len({each.text for each in done.values()}) == 1
            text = done[Mode.TARGET].text
            assert done[Mode.TARGET].stats.finish_reason == "stop"
            assert done[Mode.TARGET].stats.sources[TokenSource.FORCED] > 2
            if "regex" in grammar:
                assert re.fullmatch(grammar["regex"], text)
            else:
                assert json.loads(text)["arguments"][0].keys() == {"name", "default"}
