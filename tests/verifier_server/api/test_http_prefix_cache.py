"""Replies tell how much of a prompt was read before, whoever asks for it, and only texts of the same key share it."""

from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from tests.verifier_server.conftest import LiveServer, Serve
from tests.verifier_server.support import bearer, metric

SCRIPT = Script(seed=2)
PROMPT = [256, *range(60)]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file with two keys, each of which is its own name."""
    path = tmp_path / "keys.toml"
    for name in ("one", "two"):
        key_file.add(path, StoredKey(name, digest_of(name), KeyLimits(), admin=False))
    return path


def text(live: LiveServer, path: str = "/generate", prompt: list[int] = PROMPT, **given: Any) -> int:
    """How many tokens of a prompt were cached. The session is gone afterwards."""
    headers = given.pop("headers", None)
    body = {"prompt_ids": prompt, "max_tokens": 8, **given}
    if path == "/v1/completions":
        reply = live.post(path, {"prompt": prompt, "max_tokens": 8, **given}, headers=headers)
        assert (
            reply["usage"]["prompt_tokens"] == len(prompt) == reply["timings"]["prompt_n"] + reply["timings"]["cache_n"]
        )
        cached: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert reply["timings"]["cache_n"] == cached
        return cached
    reply = live.post(path, body, headers=headers)
    if path == "/prefill":
        live.http.delete(f"/sessions/{reply['session_id']}", headers=headers)
    return int(reply.get("cached_tokens", 0))


@pytest.mark.parametrize("path", ["/generate", "/prefill", "/v1/completions"])
def test_the_same_prompt_again_and_the_next_turn(serve: Serve, path: str) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=3))
    assert [text(live, path), text(live, path)] == [0, 60]
    assert text(live, path, [*PROMPT, 5, 6, 7]) == 61
    assert metric(live, "prefix_cache_hits_total") == 60 + 61
    assert metric(live, "kv_kept_tokens") > 60


@pytest.mark.parametrize("mode", ["target", "fused"])
def test_a_stream_tells_it_with_its_first_tokens(serve: Serve, mode: str) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=3), draft=ScriptedBackend(SCRIPT, slots=2))
    assert text(live, mode=mode) == 0
    body = {"prompt_ids": PROMPT, "max_tokens": 8, "stream": True, "mode": mode}
    with live.http.stream("POST", "/generate", json=body) as response:
        lines = [line for line in response.iter_lines() if '"tokens"' in line or '"token_ids"' in line]
    assert len(lines) >= 2
    assert ['"cached_tokens":60' in line for line in lines] == [True, *[False] * (len(lines) - 2), True]


def test_keys_and_salts_share_nothing(serve: Serve, keys: Path) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=8), keys_file=keys)
    one, other = bearer("one"), bearer("two")
    for path in ("/generate", "/prefill", "/v1/completions"):
        prompt = [*PROMPT, 100, len(path)]
        assert text(live, path, prompt, headers=one, cache_salt=path) == 0
        assert text(live, path, prompt, headers=other, cache_salt=path) == 0
        assert text(live, path, prompt, headers=one, cache_salt=path + "x") == 0
        assert text(live, path, prompt, headers=one, cache_salt=path) == 62


def test_the_operator_may_let_keys_share(serve: Serve, keys: Path) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=8), keys_file=keys, share_prefixes=True)
    assert [text(live, headers=bearer("one")), text(live, headers=bearer("two"), cache_salt="x")] == [0, 60]


def test_nothing_is_kept_with_a_setting_of_0(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=3), keep_tokens=0)
    assert [text(live), text(live)] == [0, 0]
    assert metric(live, "kv_kept_tokens") == 0


def test_choices_of_one_prompt_do_not_count_for_each_other(serve: Serve) -> None:
    """Each prompt counts once, as in `prompt_tokens`."""
    live = serve(ScriptedBackend(SCRIPT, slots=3))
    assert text(live, "/v1/completions", n=3) == 0
    assert text(live, "/v1/completions", n=3) == 60
