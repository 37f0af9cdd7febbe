"""What takes long to compile is found in a schema before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.grammar.keywords import largest_multiple

DEFS = {"$defs": {"a": {"allOf": [{"multipleOf": 11}]}, "b/c": {"multipleOf": 13, "$ref": "#/$defs/b~1c"}}}


@pytest.mark.parametrize(
    ("schema", "largest"),
    [
        (True, 0),
        ({}, 0),
        ({"multipleOf": 9999991}, 9999991),
        ({"multipleOf": 0.25}, 25),
        ({"multipleOf": 1e-7}, 1),
        ({"items": [{"properties": {"a": {"multipleOf": 6}}}, {"multipleOf": 4}]}, 6),
        ({"allOf": [{"multipleOf": 4}, {"allOf": [{"multipleOf": 6}]}], "multipleOf": 5}, 60),
        ({"allOf": [{"multipleOf": 0.4}, {"multipleOf": 0.6}]}, 12),  # 1.2
        ({"anyOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, 997),  # one or the other
        ({"multipleOf": 5, "oneOf": [{"multipleOf": 7}, {"allOf": [{"multipleOf": 9}]}]}, 45),
        ({"allOf": [{"anyOf": [{"multipleOf": 4}, {}]}, {"anyOf": [{"multipleOf": 3}, {"multipleOf": 2}]}]}, 12),
        ({"anyOf": [{"$ref": "#"}, {"multipleOf": 3}]}, 3),
        (DEFS | {"multipleOf": 3, "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b~1c"}]}, 429),
        ({"allOf": [{"$ref": "#"}, {"multipleOf": 12}]}, 12),
        ({"$ref": "https://example.com/a.json", "multipleOf": 5, "allOf": 3}, 5),
        ({"enum": [{"multipleOf": 10**9}], "properties": {"multipleOf": {"type": "string"}}}, 0),
        ({"anyOf": [{"multipleOf": -3}, {"multipleOf": 0}, {"multipleOf": True}, {"multipleOf": "7"}]}, 0),
    ],
)
def test_the_largest_multiple(schema: Any, largest: int) -> None:
    assert largest_multiple(schema) == largest


@pytest.mark.parametrize(
    "schema",
    [
        {"multipleOf": 10**4000},
        {"multipleOf": 1e300},
        {"allOf": [{"multipleOf": number} for number in range(1, 4000)]},
    ],
)
def test_a_large_multiple_is_found_without_long_sums(schema: Any) -> None:
    assert largest_multiple(schema) >= 10**12


def test_references_that_double_at_each_step_are_followed_once() -> None:
    steps = {f"s{at}": {"allOf": [{"$ref": f"#/$defs/s{at + 1}"}] * 2} for at in range(200)}
    assert largest_multiple({"$defs": steps | {"s200": {"multipleOf": 8}}, "allOf": [{"$ref": "#/$defs/s0"}]}) == 8


@given(st.integers(1, 10**8).filter(lambda number: number % 10), st.integers(0, 6))
def test_the_decimal_point_does_not_count(digits: int, places: int) -> None:
    assert largest_multiple({"multipleOf": float(f"{digits}e-{places}")}) == digits
