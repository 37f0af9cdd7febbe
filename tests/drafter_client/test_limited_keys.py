"""A drafter whose key has limits: it waits as the verifier says, and its text is the same."""

from pathlib import Path

import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from http_service.keys import key_file
from http_service.keys.stored_key import Limits, StoredKey, digest_of
from speculation.errors import RateLimited
from tests.drafter_client.support import serving

TOY = DraftModel(Path("1"), "scripted")


@pytest.mark.parametrize("limits", [Limits(tokens_per_second=50), Limits(requests=1)], ids=["tokens", "requests"])
@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_text_goes_on_when_the_limit_allows_it(tmp_path: Path, limits: Limits, lockstep: bool) -> None:
    path = tmp_path / "keys.toml"
    for name, each in (("limited", limits), ("free", Limits())):
        key_file.add(path, StoredKey(name, digest_of(name), each))
    options = Options(max_tokens=60, temperature=0.8, seed=3, draft_n=6, lockstep=lockstep)
    with serving(keys_file=path) as verifier:
        texts = {}
        for name in ("free", "limited"):
            with Pair(verifier.url, TOY, api_key=name) as pair:
                texts[name] = [pair.generate("def f(x):", options).read().text for _ in range(2)]
        refused = verifier.service.metrics.registry.get_sample_value(
            "specpair_http_requests_total", {"model_name": "scripted-1", "route": "/verify", "status": "429"}
        )
    assert texts["limited"] == texts["free"]
    if limits.tokens_per_second or not lockstep:
        assert refused and refused > 0, "the limit was reached in the middle of a text"


@pytest.mark.parametrize("mode", [Mode.TARGET, Mode.REMOTE])
def test_text_that_cannot_begin_in_time_reports_the_limit(tmp_path: Path, mode: Mode) -> None:
    path = tmp_path / "keys.toml"
    key_file.add(path, StoredKey("slow", digest_of("slow"), Limits(tokens_per_second=0.01)))
    with serving(keys_file=path) as verifier, Pair(verifier.url, TOY, api_key="slow") as pair:
        accounts = verifier.service.gate.accounts
        account, now = accounts.of("slow"), accounts.clock()
        account.begin_request(Limits(tokens_per_second=0.01), now)
        account.count(now, generated=100)
        account.end_request(now)
        with pytest.raises(RateLimited, match=r"your key may spend 0\.01 tokens a second: try again later"):
            pair.generate("x", Options(max_tokens=5, mode=mode)).read()
