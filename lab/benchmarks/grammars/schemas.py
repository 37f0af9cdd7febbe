"""Twenty schemas of what programs ask models for, each of which bounds the length of its texts."""

from typing import Any

Schema = dict[str, Any]


def record(**properties: Any) -> Schema:
    """An object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def optional(**properties: Any) -> Schema:
    return record(**properties) | {"required": []}


def words(most: int = 24) -> Schema:
    return {"type": "string", "maxLength": most}


def number(low: float, high: float, **more: Any) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high} | more


def array(items: Any, least: int = 0, most: int = 3) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_PERSON = record(
    name=words(), age=number(0, 150), email={"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.(com|org)$"}
)
_REFERRED = {"$ref": "#/$defs/item"}

SCHEMAS: dict[str, Schema] = {
    "person": _PERSON,
    "nested": record(
        company=words(), head=_PERSON, address=record(street=words(), city=words(), zip=number(1000, 99999))
    ),
    "enum": record(sentiment={"enum": ["positive", "neutral", "negative"]}, sure={"type": "boolean"}),
    "constants": record(kind={"const": "order"}, version={"const": 3}, paid={"enum": [True, False, None]}),
    "pattern": record(date={"type": "string", "pattern": "^(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]$"}),
    "formats": record(when={"type": "string", "format": "date-time"}, id={"type": "string", "format": "uuid"}),
    "array": array(words(12), 2, 5),
    "array of objects": record(items=array(record(name=words(), count=number(1, 99)), 1, 3)),
    "tuple": {
        "type": "array",
        "prefixItems": [words(9), number(0, 9), {"type": "boolean"}],
        "items": False,
        "minItems": 3,
    },
    "reference": record(first=_REFERRED, others=array(_REFERRED, 0, 2))
    | {"$defs": {"item": record(id=number(0, 999))}},
    "union": record(value={"anyOf": [words(16), number(-5, 5), {"type": "null"}]}),
    "tagged union": {
        "anyOf": [
            record(kind={"const": "circle"}, radius=number(1, 9)),
            record(kind={"const": "square"}, side=number(1, 9)),
        ]
    },
    "numbers": record(
        ratio={"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
        temperature={"type": "number", "exclusiveMinimum": -50, "exclusiveMaximum": 60, "multipleOf": 0.5},
        even=number(0, 100, multipleOf=2),
    ),
    "unicode": record(
        größe={"enum": ["klein", "groß", "riesig"]}, 名前={"enum": ["愛", "結衣"]}, emoji={"const": "🚀"}
    ),
    "optional": optional(a=words(8), b=number(0, 9), c={"type": "boolean"}, d=array({"type": "null"}, 0, 2)),
    "map": {"type": "object", "additionalProperties": number(0, 9), "minProperties": 1, "maxProperties": 2}
    | {"patternProperties": {"^[a-z]{1,6}$": number(0, 9)}, "additionalProperties": False},
    "all of": {"allOf": [record(a=number(0, 9), b=words(8)), {"properties": {"b": {"minLength": 2}}}]},
    "tool call": record(
        name={"enum": ["get_weather", "send_mail"]},
        arguments=record(location=words(), unit={"enum": ["celsius", "kelvin"]}),
    ),
    "long keys": record(
        the_complete_name_of_the_customer=words(),
        the_number_of_days_until_the_delivery=number(0, 60),
        whether_the_customer_has_paid_already={"type": "boolean"},
    ),
    "deep": record(a=record(b=record(c=record(d=array(array(array(number(0, 3), 1, 2), 1, 2), 1, 2))))),
}
