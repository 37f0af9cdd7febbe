"""What drafts: looked-up tokens, a draft model that reads what is new of a text, and cores that both ends share."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.machine import corpus_folder
from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Lookup, Mode, Options, Pair, draft_sources, text_run
from drafter_client.draft_sources import OpenedSource
from drafter_client.errors import BadOption, BadReply
from drafter_client.generation.speculative_decoding import SpeculativeRun
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from drafter_client.modes.auto import ModeSelection
from specpair.corpus import index
from specpair.corpus.draft_corpus import DraftCorpus
from specpair.corpus.files import text_of
from specpair.engines.errors import first_line
from specpair.engines.load_options import LoadOptions
from specpair.engines.vocabulary import PaddedVocabulary
from specpair.speculation.policy.schedule import IN_TURNS, Mechanisms
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier, running, serving
from verifier_server.settings import Settings

PROMPT = "to be or not to be"
OPTIONS = Options(max_tokens=120, temperature=0.0, seed=1, lookup=False, lockstep=True)


@pytest.fixture(scope="module")
def repeating() -> Iterator[Verifier]:
    """A toy target whose text repeats a few bytes after a while."""
    with running(Settings(backend="scripted"), ScriptedBackend(Script(support=9, sharpness=8.0))) as started:
        yield started


def lookups_of(pair: Pair, options: Options) -> tuple[list[int], int, int]:
    """The tokens of a text, and the looked-up draft tokens: all, and those accepted."""
    text = pair.generate(PROMPT, options)
    for _ in text:
        pass
    return text.stats.token_ids, text.stats.looked_up, text.stats.looked_up_accepted


def test_draft_tokens_come_from_the_files(repeating: Verifier, tmp_path: Path) -> None:
    draft = DraftModel(Path("1"), "scripted")
    with Pair(repeating.url, draft) as without:
        alone, *_ = lookups_of(without, Options(max_tokens=120, temperature=0.0, mode=Mode.TARGET))
        assert lookups_of(without, OPTIONS) == (alone, 0, 0)
        assert without.corpus is None
    file = tmp_path / "notes.txt"
    file.write_bytes(bytes(token for token in alone if token))  # a file with zeros would count as binary
    with Pair(repeating.url, draft, corpus=[tmp_path]) as pair:
        folder = corpus_folder()
        assert folder is not None
        with closing(DraftCorpus([tmp_path], pair.vocabulary, folder)) as corpus:  # a second process beside the pair's
            assert corpus.wait(60)
            assert (corpus.state.files, corpus.state.failure) == (1, None)
        tokens, looked_up, accepted = lookups_of(pair, OPTIONS)
        assert tokens == alone and looked_up >= accepted > 20
        state = pair.corpus
        assert state is not None and state.files == 1 and state.described.startswith("1 file")


def test_a_text_of_a_new_process_drafts_from_the_files(repeating: Verifier, tmp_path: Path, drafter: Command) -> None:
    with Pair(repeating.url, None) as pair:
        alone = pair.generate(PROMPT, Options(max_tokens=120, temperature=0.0)).read().stats.token_ids
    (tmp_path / "notes.txt").write_bytes(bytes(token for token in alone if token))
    one = ("--backend", "ngram", "--lockstep", "--temperature", "0", "--max-tokens", "120", "--prompt", PROMPT)
    ways = ((), ("--draft-corpus", str(tmp_path)))
    without, found = (json.loads(drafter("--verifier", repeating.url, *one, *way, "--json").out) for way in ways)
    assert found["corpus"]["files"] == 1 and found["token_ids"] == without["token_ids"] == alone
    assert found["accepted"] + found["looked_up_accepted"] > without["accepted"] + without["looked_up_accepted"] + 20


def test_corpus_build_makes_the_index_that_texts_use(
    repeating: Verifier, tmp_path: Path, drafter: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a note")
    (tmp_path / "b.txt").write_text("another one")
    (tmp_path / "c.pem").write_text("key")
    read = text_of

    def refused(path: str) -> str | None:
        if path.endswith("b.txt"):
            raise PermissionError(13, "Permission denied", path)
        return read(path)

    build = ("corpus", "build", str(tmp_path), "--verifier", repeating.url)
    monkeypatch.setattr("specpair.corpus.index.text_of", refused)
    built = drafter(*build)
    assert built.status == 1 and f"cannot be read: {tmp_path}/b.txt" in built.err
    assert built.out.startswith(f"{tmp_path}: 1 file, 6 tokens, ") and "left out: 1 keys, 1 unreadable" in built.out
    monkeypatch.undo()
    built = drafter(*build)
    assert built.status == 0 and built.out.startswith(f"{tmp_path}: 2 files, 17 tokens, ")
    folder = corpus_folder()
    assert folder is not None
    for source in (DraftModel(Path("1"), "scripted"), Lookup()):  # the draft model's vocabulary, and the target's
        with Pair(repeating.url, source) as pair:
            store = index.Store.of(tmp_path, PaddedVocabulary(pair.vocabulary, pair.vocabulary.size + 9), folder)
            assert store.state().files == 2
    monkeypatch.setattr(index.Store, "add", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    (tmp_path / "d.txt").write_text("more")
    full = drafter(*build)
    assert full.status == 1 and "No space left on device. What is done is kept" in full.err
    assert drafter("corpus", "build", str(tmp_path / "missing")).status == 2


def test_what_is_not_there_is_refused(repeating: Verifier, tmp_path: Path, drafter: Command) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(BadOption, match="no such file or folder"):
        Pair(repeating.url, None, corpus=[missing])
    refused = drafter("--verifier", repeating.url, "--prompt", "x", "--draft-corpus", str(missing))
    assert refused.status == 2 and "--draft-corpus: no such file or folder" in refused.err


def test_draft_tokens_come_from_earlier_texts_of_the_same_salt(repeating: Verifier) -> None:
    """The text is looked_up by the target alone first, so that it is not in the prompt of the next one."""
    again = Options(max_tokens=120, temperature=0.0, lockstep=True)
    with Pair(repeating.url, DraftModel(Path("1"), "scripted")) as pair:
        alone, *_ = lookups_of(pair, Options(max_tokens=120, temperature=0.0, mode=Mode.TARGET))
        _, _, in_text = lookups_of(pair, again.cold())
        tokens, _, accepted = lookups_of(pair, again)
        assert tokens == alone and accepted > in_text + 20
        assert lookups_of(pair, OPTIONS) == (alone, 0, 0), "--no-lookup is for earlier texts, too"


def test_vocabulary_with_another_fingerprint_is_refused(repeating: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(VerifierClient(repeating.url)) as client:
        info, other = client.model(), json.loads(client.call("GET", "/vocabulary", None))
        other["pieces"] = [*other["pieces"][:-3], "x", *other["pieces"][-2:]]
        monkeypatch.setattr(client, "call", lambda *_: json.dumps(other).encode())
        with pytest.raises(BadReply, match="does not match its fingerprint"):
            RemoteVocabulary(client, info)


LONG = [256, *(at % 200 for at in range(1200))]  # the drafter reads it in several pieces


@pytest.fixture(scope="module")
def slow() -> Iterator[Verifier]:
    # As slow as a model's target: else a text of 4 tokens may end before the drafter has read its prompt.
    with serving(ScriptedBackend(Script(seed=1, seconds_per_pass=0.02), slots=4, context_length=2048)) as running:
        yield running


@pytest.fixture
def drafting(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedBackend]:
    """The draft model, once it is loaded."""
    loaded: list[ScriptedBackend] = []

    def load(*_: Any) -> ScriptedBackend:
        loaded.append(ScriptedBackend(Script(seed=1), slots=4, context_length=2048))
        return loaded[-1]

    monkeypatch.setattr(draft_sources, "load_draft", load)
    return loaded


def read(pair: Pair, draft: ScriptedBackend, prompt: list[int], **options: Any) -> int:
    """How many tokens the draft model reads for a text of 4 tokens."""
    before = draft.fed
    pair.generate(prompt, Options(max_tokens=4, mode=Mode.REMOTE, lookup=False, **options)).read()
    return draft.fed - before


@pytest.mark.parametrize("lockstep", [False, True])
def test_the_same_prompt_again_and_its_next_turn(
    slow: Verifier, drafting: list[ScriptedBackend], lockstep: bool
) -> None:
    with Pair(slow.url, DraftModel(Path("1"), "scripted", LoadOptions()), branches=2) as pair:
        [draft] = drafting
        assert read(pair, draft, LONG, lockstep=lockstep) >= len(LONG) - 1
        for prompt in (LONG, [*LONG, 7, 8, 9]):
            assert read(pair, draft, prompt, lockstep=lockstep) < 200
        assert read(pair, draft, LONG, lockstep=lockstep, cache_salt="x") >= len(LONG) - 1


def test_two_chats_by_turns_each_have_the_place_that_knows_them(
    slow: Verifier, drafting: list[ScriptedBackend]
) -> None:
    other = [255, *LONG[1:]]
    with Pair(slow.url, DraftModel(Path("1"), "scripted", LoadOptions()), branches=1, texts=2) as pair:
        [draft] = drafting
        for prompt in (LONG, other):
            assert read(pair, draft, prompt) >= len(LONG) - 1
        for prompt in (LONG, other, other, LONG):
            assert read(pair, draft, prompt) < 200


TOY = DraftModel(Path("1"), "scripted")


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.AUTO])
def test_on_shared_cores_auto_drafts_without_self_continuation(
    verifier: Verifier, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Mechanisms] = []

    def speculating(*, mechanisms: Mechanisms, **how: Any) -> SpeculativeRun:
        used.append(mechanisms)
        return SpeculativeRun(mechanisms=mechanisms, **how)

    monkeypatch.setattr(text_run, "SpeculativeRun", speculating)
    monkeypatch.setattr(OpenedSource, "shares_cores", True)
    monkeypatch.setattr(ModeSelection, "next", lambda *_, **__: Mode.REMOTE)
    with Pair(verifier.url, TOY) as pair:
        assert len(pair.generate("a", Options(max_tokens=20, mode=mode, lookup=False)).read().token_ids) == 20
    assert used == [replace(IN_TURNS, self_continue=mode is Mode.REMOTE)]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA error: an illegal memory access\nmore")], ids=repr)
def test_a_draft_model_that_cannot_be_timed_does_not_keep_a_pair_from_being_made(
    verifier: Verifier, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ScriptedBackend, "extend", fail)
    with Pair(verifier.url, TOY) as pair:
        assert pair.paired.drafting.times is None
    told = [record.getMessage() for record in caplog.records if record.name == "specpair.drafter"]
    assert told == [f"the draft model could not be timed: {first_line(error)}"]
