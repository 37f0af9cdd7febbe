"""Server-side drafting from earlier texts: each key finds its own, of the same salt, and nobody else's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from tests.verifier_server.conftest import LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.generation.drafting import GREEDY, body_of
from tests.verifier_server.support import PROMPT_IDS, bearer

LENGTH = 100
SCRIPT = Script(support=9, sharpness=8.0)


def looked_up(live: LiveServer, key: str | None = None, **options: Any) -> int:
    """The looked-up draft tokens of a text that were accepted."""
    headers = None if key is None else bearer(key)
    body = body_of(GREEDY, max_tokens=LENGTH, **{"cache_salt": "", **options})
    reply = live.post("/generate", body, headers=headers)
    assert reply["token_ids"] == plain(SCRIPT, PROMPT_IDS, LENGTH)
    accepted: int = reply["speculation"]["looked_up_accepted"]
    return accepted


def backend(seconds_per_pass: float = 0.0) -> ScriptedBackend:
    script = replace(SCRIPT, seconds_per_pass=seconds_per_pass)
    return ScriptedBackend(script, slots=2, context_length=512, max_batch_tokens=128)


def test_a_key_finds_its_own_texts_of_the_same_salt(serve: Serve, tmp_path: Path) -> None:
    for name in ("one", "two"):
        key_file.add(tmp_path / "keys", StoredKey(name, digest_of(name), KeyLimits(), admin=False))
    live = serve(backend(), keys_file=tmp_path / "keys", draft_backend="ngram")
    assert looked_up(live, "one") == 0
    assert looked_up(live, "one") > 40
    assert looked_up(live, "one", cache_salt="another") == 0
    assert looked_up(live, "two") == 0
    assert looked_up(live, "two") > 40


@pytest.mark.parametrize("rounds", [True, False])
def test_a_draft_model_is_helped_by_them(serve: Serve, rounds: bool) -> None:
    # Passes as long as a model's: of shorter ones the server says, rightly, that a draft token costs what it brings.
    live = serve(backend(0.02), draft=ScriptedBackend(Script(seed=5), slots=2, context_length=512))
    length = None if rounds else 4
    first = looked_up(live, draft_n=length)
    assert looked_up(live, draft_n=length) > first + 20
