"""A conversation whose questions each need one of three tools."""

import json
from typing import Any, NamedTuple

import jsonschema_rs


def _tool(name: str, words: str, **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}


_TEXT = {"type": "string"}
TOOLS = [
    _tool("get_weather", "The weather in a city now.", city=_TEXT),
    _tool("convert_currency", "Convert an amount of money.", amount={"type": "number"}, source=_TEXT, target=_TEXT),
    _tool("find_train", "The next train between two cities.", origin=_TEXT, destination=_TEXT),
]


SYSTEM = "You are a travel assistant. Call a tool for each question. When you have its result, answer in one sentence."


class Turn(NamedTuple):
    question: str
    tool: str
    words: tuple[str, ...]  # what the arguments must hold
    result: str

    def fault(self, calls: list[tuple[str, dict[str, Any]]]) -> str | None:
        """What is wrong with the calls, names and arguments; None: nothing."""
        if len(calls) != 1:
            return f"{len(calls)} calls"
        (name, arguments), schemas = (
            calls[0],
            {each["function"]["name"]: each["function"]["parameters"] for each in TOOLS},
        )
        if name != self.tool:
            return f"not {self.tool}"
        if not jsonschema_rs.is_valid(schemas[name], arguments):
            return "arguments are not valid"
        lacking = [word for word in self.words if word not in json.dumps(arguments).lower()]
        return f"arguments lack {', '.join(lacking)}" if lacking else None


TURNS = (
    Turn("What is the weather in Lisbon right now?", "get_weather", ("lisbon",), '{"sky": "clear", "celsius": 24}'),
    Turn(
        "When does the next train go from Porto to Lisbon?", "find_train", ("porto", "lisbon"), '{"departure": "14:10"}'
    ),
    Turn(
        "How much are 250 euros in Swedish crowns?",
        "convert_currency",
        ("250",),
        '{"amount": 2812.5, "currency": "SEK"}',
    ),
    Turn("And what is the weather in Oslo?", "get_weather", ("oslo",), '{"sky": "snow", "celsius": -3}'),
    Turn("Find me a train from Oslo to Bergen.", "find_train", ("oslo", "bergen"), '{"departure": "08:25"}'),
    Turn(
        "Convert 99 US dollars to Norwegian crowns.",
        "convert_currency",
        ("99",),
        '{"amount": 1044.0, "currency": "NOK"}',
    ),
)
