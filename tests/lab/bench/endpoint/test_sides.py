"""Sides are what the flags say, and mistakes in the flags are named."""

import pytest

from lab.bench.endpoint.side import side_of_record, sides_of
from lab.bench.errors import BadSide


def test_values_are_of_all_sides_or_of_one() -> None:
    first, second = sides_of(
        ["a=http://host:1/v1/", "b=host:2"],
        models=["m", "b=n"],
        keys=["b=KEY"],
        prices=["2.5", "b=0"],
        extras=['{"x": 1}', 'a={"y": "p=q"}'],
        environment={"KEY": "secret"},
    )
    assert (first.url, second.url) == ("http://host:1/v1", "http://host:2/v1")
    assert (first.model, second.model) == ("m", "n")
    assert (first.key, second.key) == (None, "secret")
    assert (first.price_per_hour, second.price_per_hour) == (2.5, None)  # 0 is not known
    assert (first.extra, second.extra) == ({"y": "p=q"}, {"x": 1})
    assert "secret" not in repr(second)
    record = second.as_record("n", {})
    assert "secret" not in repr(record)
    assert side_of_record(record, {"KEY": "secret"}) == second
    with pytest.raises(BadSide, match="the variable KEY, which has the key of b, is not set"):
        side_of_record(record, {})


def test_modes_are_sides() -> None:
    sides = sides_of([], ["http://host:1"], extras=['off={"x": 1}'])
    assert [each.name for each in sides] == ["off", "remote", "fused", "auto"]
    assert sides[0].extra == {"x": 1, "speculative": {"mode": "off"}}
    assert all(each.may_lack for each in sides)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"given": []}, "no side is named: give the address of an endpoint"),
        ({"given": ["http://host:1/v1"]}, "--side: 'http://host:1/v1' is no name with an address: write NAME=URL"),
        ({"given": ["a=ftp://host"]}, "'ftp://host' is not the address of an endpoint"),
        ({"given": ["a=http://me:pw@host/v1"]}, "name the variable of its key with --key"),
        ({"given": ["a=h", "a=i"]}, "--side: two sides are called a"),
        ({"given": ["off=h"], "modes": ["h"]}, "--side: two sides are called off"),
        ({"given": ["pair=h"], "models": ["pare=m"]}, "--model: no side is called 'pare'; did you mean pair?"),
        ({"given": ["a=h"], "keys": ["NO_SUCH"]}, "--key: the variable NO_SUCH, which has the key of a, is not set"),
        ({"given": ["a=h"], "prices": ["cheap"]}, "--price: 'cheap' is no price of an hour"),
        ({"given": ["a=h"], "prices": ["-1"]}, "--price: '-1' is no price of an hour"),
        ({"given": ["a=h"], "extras": ["{"]}, "--extra: '{' is no object of JSON"),
    ],
)
def test_a_bad_flag_is_named(given: dict[str, list[str]], message: str) -> None:
    with pytest.raises(BadSide) as caught:
        sides_of(**given, environment={})
    assert message in str(caught.value)
