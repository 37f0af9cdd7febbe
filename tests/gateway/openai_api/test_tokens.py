"""`/tokenize`, `/detokenize` and `/apply-template`, at both ends, in the forms of llama-server and of vLLM."""

import json
from typing import Any

import httpx
import pytest

from backends.scripted import BEGIN, END

Json = dict[str, Any]
CHAT: Json = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "é<end>"}]}
RENDERED = "<system>S</><user>é<end></><assistant>"  # by the template of `conftest`


def _asked(url: str, path: str, body: Any, **given: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(url + path, content=content, trust_env=False, timeout=30, **given)


def _told(url: str, path: str, body: Any) -> Json:
    reply = _asked(url, path, body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_a_text_in_llama_server_s_form(url: str) -> None:
    assert _told(url, "/tokenize", {"content": "é<end>"})["tokens"] == [*"é".encode(), END]
    plain = _told(url, "/tokenize/", {"content": "é<end>", "add_special": True, "parse_special": False})
    assert plain["tokens"] == [BEGIN, *"é<end>".encode()] and plain["count"] == 8
    pieces = _told(url, "/tokenize", {"content": "aé<end>", "with_pieces": True})["tokens"]
    expected = [(97, "a"), (0xC3, [0xC3]), (0xA9, [0xA9]), (END, "<end>")]
    assert pieces == [{"id": token, "piece": piece} for token, piece in expected]
    assert _told(url, "/tokenize", {"content": ""})["tokens"] == []


def test_a_text_in_vllm_s_form(url: str) -> None:
    ids = [BEGIN, *"é<end>".encode()]
    told = _told(url, "/tokenize", {"model": "scripted-2", "prompt": "é<end>"})
    assert told == {"tokens": ids, "count": 8, "max_model_len": 512}
    told = _told(url, "/tokenize", {"prompt": "ab", "add_special_tokens": False, "return_token_strs": True})
    assert (told["tokens"], told["token_strs"]) == ([97, 98], ["a", "b"])


def test_a_text_in_our_form(url: str) -> None:
    assert _told(url, "/tokenize", {"text": "é<end>"}) == {"token_ids": [BEGIN, *"é<end>".encode()]}
    parts = [{"text": "a", "parse_control": True}, {"text": "<end>"}, {"text": "<end>", "parse_control": True}]
    assert _told(url, "/tokenize", {"parts": parts}) == {"token_ids": [BEGIN, *b"a<end>", END]}


def test_the_tokens_of_a_chat_are_those_that_it_is_answered_for(url: str) -> None:
    options: Json = {"max_tokens": 8, "seed": 3, "return_token_strs": True}
    told = _told(url, "/tokenize", CHAT | options)
    assert told["tokens"] == [BEGIN, *RENDERED.encode()] and told["token_strs"][0] == "<begin>"
    answered = _told(url, "/v1/chat/completions", CHAT | options)
    continued = _told(url, "/v1/completions", options | {"prompt": told["tokens"]})
    assert answered["choices"][0]["message"]["content"] == continued["choices"][0]["text"]
    assert answered["usage"]["prompt_tokens"] == told["count"]


def test_a_conversation_as_text(url: str) -> None:
    assert _told(url, "/apply-template", CHAT | {"temperature": 0, "stream": True}) == {"prompt": RENDERED}


def test_the_text_of_tokens(url: str) -> None:
    ids = [BEGIN, *"é".encode(), 0xC3, END]
    text = "<begin>é�<end>"
    assert _told(url, "/detokenize", {"tokens": ids}) == {"content": text, "prompt": text}
    assert _told(url, "/detokenize", {"tokens": [], "model": ""})["content"] == ""


def test_a_text_may_be_longer_than_the_context_within_reason(url: str) -> None:
    told = _told(url, "/tokenize", {"content": "x" * 1000})
    assert (told["count"], told["max_model_len"]) == (1000, 512)
    reply = _asked(url, "/tokenize", {"content": "x" * 2049})
    assert reply.status_code == 422 and "has 2049 tokens, at most 2048 are told" in reply.json()["error"]["message"]


@pytest.mark.parametrize("asked", [{}, {"return_token_strs": True}])
def test_many_tokens_are_all_told(url: str, asked: Json) -> None:
    told = _told(url, "/tokenize", {"prompt": "é" * 1023} | asked)
    assert told["tokens"] == [BEGIN, *("é" * 1023).encode()] and told["count"] == 2047
    assert told.get("token_strs") in (None, ["<begin>", *["\ufffd"] * 2046])


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("/tokenize", {"content": 1}, "invalid_request", "content"),
        ("/tokenize", {"content": "x", "prompt": "y"}, "invalid_request", "prompt"),
        ("/tokenize", {"prompt": "x", "with_pieces": True}, "invalid_request", "with_pieces"),
        ("/tokenize", {}, "invalid_request", None),
        ("/tokenize", b"{", "invalid_request", None),
        ("/tokenize", b'{"content": "\\ud800"}', "invalid_request", None),
        ("/tokenize", {"messages": []}, "invalid_request", "messages"),
        ("/tokenize", CHAT | {"return_token_strs": 1}, "invalid_request", "return_token_strs"),
        ("/tokenize", {"prompt": "x", "model": "gpt-4o"}, "model_not_found", "model"),
        ("/tokenize", {"content": "x" * 60_000}, "prompt_too_long", "content"),
        ("/tokenize", {"prompt": "x" * 60_000}, "prompt_too_long", "prompt"),
        ("/tokenize", {"text": "x" * 60_000}, "prompt_too_long", None),
        ("/tokenize", {"messages": [{"role": "user", "content": "x" * 60_000}]}, "prompt_too_long", "messages"),
        ("/tokenize", {"content": "x" * 5_000_000}, "body_too_large", None),
        ("/detokenize", {"tokens": [97, 258]}, "token_out_of_range", "tokens"),
        ("/detokenize", {"tokens": [-1]}, "token_out_of_range", "tokens"),
        ("/detokenize", {"tokens": [97] * 513}, "prompt_too_long", "tokens"),
        ("/detokenize", {"tokens": "x"}, "invalid_request", "tokens"),
        ("/detokenize", {"tokens": [97], "model": "gpt-4o"}, "model_not_found", "model"),
        ("/apply-template", {}, "invalid_request", "messages"),
        ("/apply-template", CHAT | {"model": "gpt-4o"}, "model_not_found", "model"),
        ("/apply-template", CHAT | {"documents": [{}]}, "invalid_request", "documents"),
    ],
)
def test_what_is_wrong_is_a_typed_error(url: str, path: str, body: Any, code: str, param: str | None) -> None:
    reply = _asked(url, path, body)
    error = reply.json()["error"]
    assert reply.status_code in (404, 413, 422) and error["code"] == code, error
    assert param is None or (error["param"] == param and error["message"].startswith(param)), error
