"""Server-side drafting from the operator's files: the text stays the target's, and its draft tokens come from them."""

from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from tests.verifier_server.conftest import LiveServer, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.generation.drafting import GREEDY, body_of
from tests.verifier_server.support import PROMPT_IDS

LENGTH = 100
SCRIPT = Script(support=9, sharpness=8.0)


def test_draft_tokens_come_from_the_files(tmp_path: Path) -> None:
    text = plain(SCRIPT, PROMPT_IDS, LENGTH)
    (tmp_path / "notes.txt").write_bytes(bytes(token for token in text if token))  # zeros would count as binary
    backend = ScriptedBackend(SCRIPT, slots=2, context_length=512, max_batch_tokens=128)
    live = LiveServer(settings(draft_backend="ngram", draft_corpus=(tmp_path,)), backend)
    try:
        live.wait_until_ready()
        corpus = live.service.loader.loaded().predicting.corpus
        assert corpus is not None and corpus.wait(60) and corpus.state.files == 1
        reply = live.post("/generate", body_of(GREEDY, max_tokens=LENGTH))
    finally:
        live.close()
    assert reply["token_ids"] == text
    assert reply["speculation"]["looked_up_accepted"] > 20


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(ValueError, match="draft_corpus: no such file or folder: "):
        settings(draft_backend="ngram", draft_corpus=(gone,))
    with pytest.raises(ValueError, match="draft_corpus: there is no draft model"):
        settings(draft_corpus=(tmp_path,))
