"""The sides of a run, the endpoints that are measured, as the flags describe them."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from drafter_client.http.addresses import with_scheme
from lab.bench.errors import BadSide
from lab.bench.records import Side
from specpair.command_line.setting_values import advice

Json = dict[str, Any]
_NAME = re.compile(r"[\w.-]+")
MODES = ("off", "remote", "fused", "auto")  # of `speculative` in a request


def key_of(side: Side, environment: Mapping[str, str] = os.environ) -> str | None:
    """The bearer token; None: none is sent. Raises BadSide if the variable is not set."""
    variable = side.api_key_variable
    if variable is None:
        return None
    if not environment.get(variable):
        raise BadSide(f"--key: the variable {variable}, for the key of {side.name}, is not set")
    return environment[variable]


def sides_of(
    given: Sequence[str],
    modes: Sequence[str] = (),
    *,
    models: Sequence[str] = (),
    keys: Sequence[str] = (),
    prices: Sequence[str] = (),
    extras: Sequence[str] = (),
) -> list[Side]:
    """The sides that the flags describe. Raises BadSide, which names the flag.

    `given`: `NAME=URL`.
    `modes`: addresses of `drafter serve` or a verifier, of which each mode is a side, named like the mode.
    `models`, `keys`, `prices`, `extras`: `VALUE` for all sides, or `NAME=VALUE` for one. `keys` are names of variables.
    """
    named = [(*_named(each), "", False) for each in given]
    for url in modes:
        named += [(mode, url, mode, True) for mode in MODES]
    names = [name for name, *_ in named]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadSide(f"--side: two sides are called {twice}: give one of them another name")
    if not named:
        raise BadSide("no side is named: give the address of an endpoint, as --side pair=http://127.0.0.1:8080/v1")
    model, key = _by_side("--model", models, names), _by_side("--key", keys, names)
    price, extra = _by_side("--price", prices, names), _by_side("--extra", extras, names)
    sides = []
    for name, url, mode, may_lack in named:
        added = _object(extra[name]) if name in extra else {}
        if mode:
            added = {**added, "speculative": {"mode": mode, **added.get("speculative", {})}}
        sides.append(
            Side(
                name=name,
                url=_base(url),
                model=model.get(name),
                api_key_variable=key.get(name),
                extra=added,
                price_per_hour=_price(price[name]) if name in price else None,
                may_lack=may_lack,
            )
        )
    return sides


def _named(given: str) -> tuple[str, str]:
    name, equals, url = given.partition("=")
    if not equals or not _NAME.fullmatch(name) or not url:
        raise BadSide(f"--side: {given!r} is no name with an address: write NAME=URL, as pair=http://127.0.0.1:8080/v1")
    return name, url


def _by_side(flag: str, given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The value for each side. A value that names its side overrides a value for all."""
    all_sides, by_name = {}, {}
    for each in given:
        name, equals, value = each.partition("=")
        if equals and name in names:
            by_name[name] = value
        elif equals and _NAME.fullmatch(name):
            raise BadSide(f"{flag}: no side is called {name!r}{advice(name, names)}")
        else:
            all_sides = dict.fromkeys(names, each)
    return {**all_sides, **by_name}


def _object(text: str) -> Json:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if type(given) is not dict:
        raise BadSide(f"""--extra: {text!r} is no object of JSON: write '{{"speculative": {{"mode": "off"}}}}'""")
    return given


def _price(text: str) -> float | None:
    """The price of an hour. None: unknown, given as 0."""
    try:
        price = float(text)
    except ValueError:
        price = -1
    if not 0 <= price < float("inf"):
        raise BadSide(f"--price: {text!r} is no price of an hour: write a number, as 2.5")
    return price or None


def _base(url: str) -> str:
    """The base of an endpoint's addresses, with /v1 where no path is given. Raises BadSide."""
    try:
        address = httpx.URL(with_scheme(url.strip()))
    except httpx.InvalidURL as error:
        raise BadSide(f"{url!r} is not the address of an endpoint ({error}): write http://host:port/v1") from None
    if address.scheme not in ("http", "https") or not address.host or address.userinfo or address.query:
        raise BadSide(
            f"{url!r} is not the address of an endpoint: write http://host:port/v1, and name the variable of its key "
            "with --key"
        )
    return str(address.copy_with(path=address.path.rstrip("/") or "/v1"))
