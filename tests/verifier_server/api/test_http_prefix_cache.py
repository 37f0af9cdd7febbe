"""Replies tell how much of a prompt was read before, whoever asks for it, and only texts of the same key share it."""

from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.http_service.keys import key_file
from specpair.http_service.keys.stored_key import KeyLimits, StoredKey, digest_of
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


def test_keys_and_salts_share_nothing(serve: Serve, keys: Path) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=8), keys_file=keys)
    one, other = bearer("one"), bearer("two")
    for path in ("/generate", "/prefill", "/v1/completions"):
        prompt = [*PROMPT, 100, len(path)]
        assert text(live, path, prompt, headers=one, cache_salt=path) == 0
        assert text(live, path, prompt, headers=other, cache_salt=path) == 0
        assert text(live, path, prompt, headers=one, cache_salt=path + "x") == 0
        assert text(live, path, prompt, headers=one, cache_salt=path) == 62
