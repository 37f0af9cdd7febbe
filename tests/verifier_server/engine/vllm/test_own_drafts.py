"""Drafts by vLLM itself, beside those of clients."""

from pathlib import Path
from typing import Any

import pytest

from specpair.speculation.acceptance.token_sources import joined
from tests.verifier_server.conftest import LiveServer
from tests.verifier_server.engine.vllm.conftest import Reference, Start, folder_with_head
from tests.verifier_server.engine.vllm.texts import DRAWN, LENGTH, PROMPTS, drafted, generated, passes
from tests.verifier_server.support import until

pytestmark = [pytest.mark.engine("vllm"), pytest.mark.filterwarnings("ignore")]  # vLLM and its libraries warn


@pytest.mark.parametrize("fields", DRAWN.values(), ids=DRAWN)
def test_texts_do_not_depend_on_vllms_own_drafts(
    verifier_on_vllm: LiveServer, drafting_on_vllm: LiveServer, reference: Reference, fields: dict[str, Any]
) -> None:
    for seed, prompt in enumerate(PROMPTS):
        ids = reference.vocabulary.encode(prompt)
        text = generated(verifier_on_vllm, ids, fields, seed)
        assert generated(drafting_on_vllm, ids, fields, seed) == text
        for body in (fields, {**fields, "self_continue": True}):
            assert drafted(drafting_on_vllm.http, ids, text, body, seed) == text
    drafting_on_vllm.service.engine.check_integrity()


def test_vllm_drafts_where_no_draft_comes_from_outside(drafting_on_vllm: LiveServer, reference: Reference) -> None:
    live, ids = drafting_on_vllm, reference.vocabulary.encode("x = [1, 2, 3, 1, 2, 3, 1, 2, 3,")
    before = passes(live)
    whole = live.post("/generate", {"prompt_ids": ids, "max_tokens": LENGTH})
    assert whole["sources"] == LENGTH * "b" and passes(live) - before < LENGTH / 2
    text = whole["token_ids"]
    before = passes(live)
    opened = live.post("/prefill", {"prompt_ids": ids, "max_tokens": LENGTH})
    drafts = {"position": len(ids) + 1, "session_id": opened["session_id"]}
    reply = live.post("/verify", {**drafts, "draft_tokens": text[1:13]})  # more than vLLM drafts
    assert (reply["judged"], reply["sources"]) == (12, 12 * "a" + "b")
    reply = live.post("/verify", {**drafts, "position": len(ids) + 14, "draft_tokens": []})
    assert (reply["tokens"], reply["sources"]) == (text[14:15], "b")
    assert passes(live) - before == 3
    live.post("/prefill", {"prompt_ids": ids, "max_tokens": LENGTH, "self_continue": True, "session_id": "alone"})
    [session] = [each for each in live.service.sessions.all() if each.id == "alone"]
    until(lambda: session.finish_reason is not None)
    assert session.tokens[len(ids) :] == text and joined(session.details.sources) == "b" + (LENGTH - 1) * "t"


def test_head_of_the_model_drafts(start: Start, folder: Path, tmp_path: Path) -> None:
    model = folder_with_head(tmp_path / "model", folder)
    live = start({"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}, model=model, slots=2)
    ids = [5 + 7 * at for at in range(20)]
    before = passes(live)
    whole = live.post("/generate", {"prompt_ids": ids, "max_tokens": 41})
    assert (whole["sources"], passes(live) - before) == (41 * "b", 11)  # all its drafts of three tokens are accepted
    for seed, fields in enumerate(DRAWN.values()):
        text = generated(live, ids, fields, seed)
        for body in (fields, {**fields, "self_continue": True}):
            assert drafted(live.http, ids, text, body, seed) == text
    live.close()
