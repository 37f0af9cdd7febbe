"""Drafts without a draft model: from the user's files, from earlier texts, from the text itself."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backends.machine import corpus_folder
from backends.scripted import Script, ScriptedBackend
from drafter_client.draft_sources import DraftModel
from drafter_client.errors import BadOption, BadReply
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from specpair.corpus.draft_corpus import DraftCorpus
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier, running
from verifier_server.settings import Settings

PROMPT = "to be or not to be"
OPTIONS = Options(max_tokens=120, temperature=0.0, seed=1, lookup=False, lockstep=True)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    """A toy target whose text repeats a few bytes after a while."""
    with running(Settings(backend="scripted"), ScriptedBackend(Script(support=9, sharpness=8.0))) as started:
        yield started


def written(pair: Pair, options: Options) -> tuple[list[int], int, int]:
    """The tokens of a text, and the looked-up draft tokens: all, and those accepted."""
    text = pair.generate(PROMPT, options)
    for _ in text:
        pass
    return text.stats.token_ids, text.stats.looked_up, text.stats.looked_up_accepted


def test_draft_tokens_come_from_the_files(verifier: Verifier, tmp_path: Path) -> None:
    draft = DraftModel(Path("1"), "scripted")
    with Pair(verifier.url, draft) as without:
        alone, *_ = written(without, Options(max_tokens=120, temperature=0.0, mode=Mode.TARGET))
        assert written(without, OPTIONS) == (alone, 0, 0)
        assert without.corpus is None
    file = tmp_path / "notes.txt"
    file.write_bytes(bytes(token for token in alone if token))  # a file with zeros would count as binary
    with Pair(verifier.url, draft, corpus=[tmp_path]) as pair:
        folder = corpus_folder()
        assert folder is not None
        with closing(DraftCorpus([tmp_path], pair.vocabulary, folder)) as corpus:  # a second process beside the pair's
            assert corpus.wait(60)
            assert (corpus.state.files, corpus.state.failure) == (1, None)
        tokens, looked_up, accepted = written(pair, OPTIONS)
        assert tokens == alone and looked_up >= accepted > 20
        state = pair.corpus
        assert state is not None and state.files == 1 and state.described.startswith("1 file")


def test_what_is_not_there_is_refused(verifier: Verifier, tmp_path: Path, drafter: Command) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(BadOption, match="no such file or folder"):
        Pair(verifier.url, None, corpus=[missing])
    refused = drafter("--verifier", verifier.url, "--prompt", "x", "--draft-corpus", str(missing))
    assert refused.status == 2 and "--draft-corpus: no such file or folder" in refused.err


def test_draft_tokens_come_from_earlier_texts_of_the_same_salt(verifier: Verifier) -> None:
    """The text is written by the target alone first, so that it is not in the prompt of the next one."""
    again = Options(max_tokens=120, temperature=0.0, lockstep=True)
    with Pair(verifier.url, DraftModel(Path("1"), "scripted")) as pair:
        alone, *_ = written(pair, Options(max_tokens=120, temperature=0.0, mode=Mode.TARGET))
        _, _, in_text = written(pair, again.cold())
        tokens, _, accepted = written(pair, again)
        assert tokens == alone and accepted > in_text + 20
        assert written(pair, OPTIONS) == (alone, 0, 0), "--no-lookup is for earlier texts, too"


def test_vocabulary_with_another_fingerprint_is_refused(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        info, other = client.model(), json.loads(client.call("GET", "/vocabulary", None))
        other["pieces"] = [*other["pieces"][:-3], "x", *other["pieces"][-2:]]
        monkeypatch.setattr(client, "call", lambda *_: json.dumps(other).encode())
        with pytest.raises(BadReply, match="is not the one that it names"):
            RemoteVocabulary(client, info)
