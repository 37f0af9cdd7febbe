"""The draft model on the server: loading it, refusing it, its slots."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from specpair.drafters.composed_drafter import SPARE_CELLS
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Progress
from specpair.engines.errors import CacheFull, ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.grammar.compiling import grammars_of
from specpair.protocol.service_responses import HealthResponse
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.conftest import SCRIPT, Serve
from verifier_server.generation.draft_model import SharedDraftModel, load_draft_model
from verifier_server.service import Service
from verifier_server.settings import Settings

SETTINGS = Settings(backend="scripted", draft_model=Path("7"))


class Loads:
    """Replaces the registry's `load`: stops halfway until `resume` is set."""

    def __init__(self) -> None:
        self.halfway, self.resume = threading.Event(), threading.Event()
        self.failure: Exception | None = None
        self.backend: ScriptedBackend = ScriptedBackend(SCRIPT, slots=2)
        self.freed = threading.Event()
        self.backend.close = self.freed.set  # type: ignore[method-assign]

    def __call__(self, name: str, options: LoadOptions, progress: Progress) -> Backend:
        assert (name, options.slots, options.context_length) == ("scripted", 4, 1024)
        assert (options.contexts, options.shared_cells, options.spare_slots) == (4, 4 * SPARE_CELLS, 4)
        progress(0.5)
        self.halfway.set()
        assert self.resume.wait(20)
        if self.failure is not None:
            raise self.failure
        return self.backend


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loads]:
    replaced = Loads()
    monkeypatch.setattr("verifier_server.generation.draft_model.load_draft", replaced)
    yield replaced
    replaced.resume.set()


def test_it_is_loaded_after_the_target_and_freed_at_the_end(
    serve: Serve, loads: Loads, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    live = serve(wait=False, draft_model=Path("7"))
    assert loads.halfway.wait(20)
    assert live.http.get("/health").json() == {"status": "loading", "progress": 0.95}
    loads.resume.set()
    live.wait_until_ready()
    assert live.http.get("/model").json()["draft_model"] == "scripted-2"
    assert "scripted-2 drafts for 2 texts at once" in caplog.text
    live.close()
    assert loads.freed.is_set()


class Closed(ScriptedBackend):
    """Records whether it was freed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def failed(loads: Loads | None, draft: Backend | None = None) -> tuple[HealthResponse, bool]:
    """The reply of /health after a start that fails, and whether the target was freed."""
    target = Closed(SCRIPT)
    service = Service(SETTINGS, target, draft=draft)
    if loads is not None:
        loads.resume.set()
    service.loader.start()
    service.stop()
    return service.health(), target.closed


def test_a_load_failure_ends_the_start_with_the_reason(loads: Loads) -> None:
    loads.failure = ModelLoadError("no such model file: x.gguf")
    assert failed(loads) == (
        HealthResponse(status="failed", reason="the draft model: no such model file: x.gguf"),
        True,
    )


def foreign() -> ScriptedBackend:
    """A scripted model whose token 65 is not A."""
    backend = ScriptedBackend(Script(seed=9))
    pieces = list(ByteVocabulary().pieces)
    pieces[65] = b"a"
    backend.vocabulary.pieces = pieces
    return backend


def test_a_foreign_vocabulary_is_refused_with_the_first_difference() -> None:
    health, freed = failed(None, foreign())
    assert health.reason == (
        "the draft model: scripted-9 cannot draft for scripted-2: choose a draft model of the target's own family. "
        "(token ids below 258 stand for different bytes (sizes 258 and 258): the first is id 65, b'a' in the draft "
        "model)"
    )
    assert freed


def test_each_text_has_a_slot_that_is_released() -> None:
    backend = ScriptedBackend(SCRIPT, slots=2)
    draft = SharedDraftModel(backend, 2, backend, lambda: 0.0, most_kept=0)
    with draft.drafter(TextSpec()) as one, draft.drafter(TextSpec()):
        assert isinstance(one, ModelDrafter) and one.width == 1
        one.expand([256, 1, 2], [[]], False)
        with pytest.raises(CacheFull), draft.drafter(TextSpec()):
            pass
    assert [backend.length(slot) for slot in range(2)] == [0, 0]
    with draft.drafter(TextSpec()):
        pass


PROMPT = [256, *range(40)]


def read(draft: SharedDraftModel, prompt: list[int], scope: object = "a") -> int:
    """How many tokens of a prompt the draft model reads."""
    with draft.drafter(TextSpec(), prompt=prompt, scope=scope) as drafter:
        return drafter.expand(prompt, [[]], False).read


def test_the_next_text_of_the_scope_begins_with_what_the_last_one_left() -> None:
    draft = SharedDraftModel(ScriptedBackend(SCRIPT, slots=3), 3, ScriptedBackend(SCRIPT), lambda: 0.0)
    assert [read(draft, PROMPT), read(draft, [*PROMPT, 1, 2])] == [41, 2]
    assert [read(draft, PROMPT, "b"), read(draft, PROMPT, "b")] == [41, 1]
    assert read(draft, [*PROMPT, 1, 2, 3]) == 1, "the other scope has another slot"


def test_the_draft_model_keeps_a_number_of_tokens_the_oldest_text_goes_first() -> None:
    draft = SharedDraftModel(ScriptedBackend(SCRIPT, slots=3), 3, ScriptedBackend(SCRIPT), lambda: 0.0, most_kept=100)
    prompts = [[number, *range(41)] for number in range(3)]
    assert [read(draft, prompt) for prompt in prompts] == [42, 42, 42]
    assert [read(draft, prompt) for prompt in reversed(prompts)] == [1, 1, 42]


def test_a_grammar_is_compiled_once_for_both_models_of_one_vocabulary() -> None:
    target = ScriptedBackend(SCRIPT)
    for size, both in ((SCRIPT.vocabulary_size, True), (300, False)):
        draft = ScriptedBackend(replace(SCRIPT, vocabulary_size=size))
        assert load_draft_model(SETTINGS, target, lambda _: None, lambda: 0.0, given=draft) is not None
        assert (grammars_of(draft.vocabulary) is grammars_of(target.vocabulary)) == both
