"""Errors survive the wire: the client raises the error that the verifier raised."""

import json
from typing import Any

import pytest

from specpair.protocol import errors
from specpair.protocol.errors import BadGateway, RequestError, ServerError, SpecPairError, from_body


def tree(cls: type[SpecPairError]) -> list[type[SpecPairError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in tree(sub))]


CLASSES = tree(SpecPairError)


@pytest.mark.parametrize("cls", CLASSES)
def test_error_survives_the_round_trip_over_json(cls: type[SpecPairError]) -> None:
    sent = cls("what happened", total_tokens=5, param=None, limit=[1, 2])
    body = json.dumps(sent.body())
    assert json.loads(body)["error"].keys() >= {"code", "type", "message"}
    received = from_body(sent.status, body.encode())
    assert type(received) is cls
    assert (received.message, str(received)) == ("what happened", "what happened")
    assert received.details == {"total_tokens": 5, "param": None, "limit": [1, 2]}


def test_each_code_names_one_class() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("cls", CLASSES[1:])
def test_status_and_type_tell_request_errors_from_server_errors(cls: type[SpecPairError]) -> None:
    by_request = issubclass(cls, RequestError)
    assert cls.status in (range(400, 500) if by_request else range(500, 600))
    limited = cls is errors.RateLimited  # OpenAI's type for it says what is limited
    assert cls.type == ("requests" if limited else "invalid_request_error" if by_request else "server_error")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RequestError), (404, RequestError), (429, RequestError), (500, ServerError), (302, ServerError)],
)
@pytest.mark.parametrize("body", [None, "<html>Bad gateway</html>", [], {}, {"error": "no"}, {"error": {"message": 5}}])
def test_foreign_replies_become_a_generic_error(status: int, kind: type[SpecPairError], body: Any) -> None:
    error = from_body(status, json.dumps(body).encode())
    assert type(error) is kind
    assert error.message == f"HTTP {status} without an error the protocol knows: is this a verifier?"


@pytest.mark.parametrize("content", [b"", b"<html>Bad gateway</html>", b"[" * 100_000, b"\xff"], ids=len)
def test_replies_that_are_no_json_become_a_generic_error(content: bytes) -> None:
    assert type(from_body(500, content)) is ServerError
    assert type(from_body(502, content)) is BadGateway


@pytest.mark.parametrize(("status", "kind"), [(418, RequestError), (500, ServerError), (503, BadGateway)])
@pytest.mark.parametrize("code", ["rate_limit_exceeded", None, 7, ["x"]])
def test_an_unknown_code_keeps_its_message(status: int, kind: type[SpecPairError], code: Any) -> None:
    body = {"error": {"message": "slow down", "code": code, "type": "other", "wait": 3}}
    error = from_body(status, json.dumps(body).encode())
    assert type(error) is kind
    assert (error.message, error.details) == ("slow down", {"wait": 3})


@pytest.mark.parametrize(
    "wait", ["soon", None, [], {}, -1, float("nan"), float("inf"), 10**400], ids=lambda wait: str(wait)[:9]
)
def test_a_time_to_wait_that_is_none_is_dropped(wait: Any) -> None:
    error = from_body(503, json.dumps({"error": {"message": "m", "code": "overloaded", "retry_after": wait}}).encode())
    assert isinstance(error, errors.Overloaded) and error.details == {}
    kept = from_body(503, b'{"error": {"message": "m", "code": "overloaded", "retry_after": 2.5}}')
    assert kept.details == {"retry_after": 2.5}
