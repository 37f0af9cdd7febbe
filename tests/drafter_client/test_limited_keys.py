"""A drafter whose key has limits: it waits as the verifier says, and its text is the same."""

from itertools import count
from pathlib import Path

import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from specpair.http_service.keys import key_file
from specpair.http_service.keys.gate import Account
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from specpair.protocol.errors import RateLimited
from tests.drafter_client.support import serving

TOY = DraftModel(Path("1"), "scripted")


def keys(folder: Path, **limits: KeyLimits) -> Path:
    """A file of keys, each of which is its own name."""
    path = folder / "keys.toml"
    for name, each in limits.items():
        key_file.add(path, StoredKey(name, digest_of(name), each))
    return path


@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_text_goes_on_when_the_limit_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lockstep: bool) -> None:
    """Each second request is refused. Meanwhile the verifier may go on by itself."""
    options = Options(max_tokens=300, temperature=0.8, seed=3, draft_n=6, lockstep=lockstep, mode=Mode.REMOTE)
    begin, asked = Account.begin_request, count()

    def begin_request(account: Account, limits: KeyLimits, now: float) -> None:
        if limits.requests and next(asked) % 2:
            raise RateLimited("not now", retry_after=0.005)
        begin(account, limits, now)

    monkeypatch.setattr(Account, "begin_request", begin_request)
    path = keys(tmp_path, limited=KeyLimits(requests=100), free=KeyLimits())
    texts = {}
    with serving(keys_file=path) as verifier:
        for name in ("free", "limited"):
            with Pair(verifier.url, TOY, api_key=name) as pair:
                texts[name] = pair.generate("def f(x):", options).read().text
    assert next(asked) >= 2, "one was refused"
    assert texts["limited"] == texts["free"]
