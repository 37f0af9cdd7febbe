"""Prompts that name an earlier text: which texts can be named, by whom, and for how long."""

from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.http_service.keys.access import ANYONE
from specpair.protocol.errors import UnknownPrefix
from specpair.protocol.messages import PrefillRequest, build
from specpair.protocol.prefix import PromptPrefix
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import bearer, keys_in
from verifier_server.earlier_prompts import EarlierPrompts
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

PROMPT = [256, *b"def main(argument):"]
MORE = [*b" and more"]
END = {"max_tokens": 12, "seed": 3, "temperature": 0.7}
TEXT = plain(SCRIPT, PROMPT, 12, Sampling(3, 0.7))


def named(session_id: str, ids: list[int]) -> dict[str, Any]:
    return {"prefix": PromptPrefix.of(session_id, ids).model_dump()}


def text_of(live: LiveServer, name: str, **given: Any) -> list[int]:
    """The prompt and the tokens of a new session's text, whose session is gone afterwards."""
    body = {"session_id": name, "prompt_ids": PROMPT} | END | given
    text = [*PROMPT, *live.post("/generate", body)["token_ids"]]
    assert live.http.delete(f"/sessions/{name}").status_code == 200
    return text


@pytest.mark.parametrize("answer", [0, 1, 12])
@pytest.mark.parametrize("rest", [[], MORE])
def test_a_prompt_that_begins_like_an_ended_text(server: LiveServer, answer: int, rest: list[int]) -> None:
    earlier = text_of(server, "ended")[: len(PROMPT) + answer]
    whole = {"prompt_ids": earlier + rest} | END
    short = {"prompt_ids": rest} | named("ended", earlier) | END
    expected = server.post("/generate", whole)
    for body in (short, whole):
        opened = server.post("/prefill", {"session_id": "again"} | body)
        assert opened["tokens"] == expected["token_ids"][:1] and opened["prompt_len"] == len(earlier + rest)
        assert opened["prompt_ids"] == body["prompt_ids"], "both ends know the others"
    assert server.post("/generate", short)["token_ids"] == expected["token_ids"]
    assert server.http.delete("/sessions/again").status_code == 200


def test_nothing_is_kept_where_no_tokens_are(serve: Serve) -> None:
    server = serve(keep_tokens=0)
    body = {"prompt_ids": MORE} | named("ended", text_of(server, "ended")) | END
    assert server.http.post("/generate", json=body).json()["error"]["code"] == "unknown_prefix"


def test_a_prompt_that_begins_like_the_text_of_a_session(server: LiveServer) -> None:
    """Its own, too, as that of a request that is repeated, or resumed."""
    opened = server.post("/prefill", {"session_id": "there", "prompt_ids": PROMPT} | END)
    known = PROMPT + opened["tokens"]
    other = server.post("/prefill", {"session_id": "other", "prompt_ids": MORE} | named("there", known) | END)
    assert other["tokens"] == server.post("/prefill", {"prompt_ids": known + MORE} | END)["tokens"]
    again = server.post("/prefill", {"session_id": "there", "prompt_ids": []} | named("there", PROMPT) | END)
    assert (again["tokens"], again["total_tokens"]) == (opened["tokens"], len(known))
    resumed = {"prompt_ids": [], "committed_ids": opened["tokens"]} | named("there", PROMPT) | END
    assert server.post("/generate", {"session_id": "there"} | resumed)["token_ids"] == TEXT
    for each in ("there", "other"):
        server.http.delete(f"/sessions/{each}")


@pytest.mark.parametrize(
    ("changed", "salt"),
    [
        ({"session_id": "never"}, ""),
        ({"length": len(PROMPT) + 13}, ""),
        ({"length": len(PROMPT) - 1}, ""),
        ({"hash": "0" * 16}, ""),
        ({}, "another"),
    ],
)
def test_a_prefix_that_is_not_held(server: LiveServer, changed: dict[str, Any], salt: str) -> None:
    text_of(server, "held")
    prefix = named("held", PROMPT)["prefix"] | changed
    for path in ("/prefill", "/generate"):
        refused = server.http.post(path, json={"prompt_ids": MORE, "prefix": prefix, "cache_salt": salt} | END)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (409, "unknown_prefix", "prefix")
        assert error["message"].endswith("send the whole prompt as prompt_ids")


def test_the_text_of_another_key_or_without_the_salt_cannot_be_named(serve: Serve, tmp_path: Path) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=2), keys_file=keys_in(tmp_path / "keys.toml", "ada", "bob"))
    body = {"session_id": "one", "prompt_ids": PROMPT, "cache_salt": "salt"} | END
    short = {"prompt_ids": MORE} | named("one", PROMPT) | END
    live.post("/prefill", body, headers=bearer("ada"))

    def statuses() -> list[int]:
        asked = [("ada", "salt"), ("ada", ""), ("bob", "salt"), ("bob", "")]
        sent = [(name, short | {"cache_salt": salt, "session_id": "two"}) for name, salt in asked]
        found = [live.http.post("/prefill", json=each, headers=bearer(name)).status_code for name, each in sent]
        live.http.delete("/sessions/two", headers=bearer("ada"))
        return found

    assert statuses() == [200, 409, 409, 409]
    live.http.delete("/sessions/one", headers=bearer("ada"))
    assert statuses() == [200, 409, 409, 409], "an ended text"


def test_the_whole_prompt_has_to_fit_and_to_be_of_the_vocabulary(serve: Serve) -> None:
    live = serve(ScriptedBackend(Script(seed=2), context_length=40))
    text_of(live, "short")
    for rest, code in (([1] * 20, "prompt_too_long"), ([5, 999], "token_out_of_range")):
        refused = live.http.post("/prefill", json={"prompt_ids": rest} | named("short", PROMPT))
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, code)
    assert refused.json()["error"]["param"] == f"prompt_ids.{len(PROMPT) + 1}", "counted in the whole prompt"


def session(name: str, length: int, *, chosen: bool = True) -> Session:
    made = Session(name, [*range(length)], length, TextSpec(seed=0), 1000, {999})
    made.scope = ("", "")
    made.lease.named = chosen
    return made


def test_the_latest_texts_are_kept_up_to_a_number_of_ids() -> None:
    earlier = EarlierPrompts(SessionTable(lambda: 0.0, 1.0, 1, lambda _: None), most=100)

    def held(name: str) -> bool:
        request = build(PrefillRequest, {"prompt_ids": [7]} | named(name, [0, 1]))
        try:
            return earlier.whole(request, ANYONE).prompt_ids == [0, 1, 7]
        except UnknownPrefix:
            return False

    for name, length in (("a", 40), ("b", 40), ("a", 50)):  # the id of the first is used again
        earlier.keep(session(name, length))
    assert (held("a"), held("b"), earlier.held) == (True, True, 90)
    earlier.keep(session("unnamed", 20, chosen=False))  # nobody knows its id
    earlier.keep(session("c", 20))
    assert [held(name) for name in ("a", "b", "c", "unnamed")] == [True, False, True, False]
    earlier.keep(session("long", 101))
    assert (held("long"), earlier.held) == (False, 0)
