"""Drafts of mode fused that are looked up: in files, in earlier texts, in a prediction of the text."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import Paced
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import FILTERED, GREEDY, PROMPT_IDS, WARM, bearer, body_of, half_right, keys_in

LENGTH = 100
REPEATED = Script(support=9, sharpness=8.0)


def test_draft_tokens_come_from_the_files(tmp_path: Path) -> None:
    text = plain(REPEATED, PROMPT_IDS, LENGTH)
    (tmp_path / "notes.txt").write_bytes(bytes(token for token in text if token))  # zeros would count as binary
    backend = ScriptedBackend(REPEATED, slots=2, context_length=512, max_batch_tokens=128)
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


def looked_up(live: LiveServer, key: str | None = None, **options: Any) -> int:
    """The looked-up draft tokens of a text that were accepted."""
    headers = None if key is None else bearer(key)
    body = body_of(GREEDY, max_tokens=LENGTH, **{"cache_salt": "", **options})
    reply = live.post("/generate", body, headers=headers)
    assert reply["token_ids"] == plain(REPEATED, PROMPT_IDS, LENGTH)
    accepted: int = reply["speculation"]["looked_up_accepted"]
    return accepted


def backend(seconds_per_pass: float = 0.0) -> ScriptedBackend:
    script = replace(REPEATED, seconds_per_pass=seconds_per_pass)
    return ScriptedBackend(script, slots=2, context_length=512, max_batch_tokens=128)


def test_a_key_finds_its_own_texts_of_the_same_salt(serve: Serve, tmp_path: Path) -> None:
    live = serve(backend(), keys_file=keys_in(tmp_path / "keys", "one", "two"), draft_backend="ngram")
    assert looked_up(live, "one") == 0
    assert looked_up(live, "one") > 40
    assert looked_up(live, "one", cache_salt="another") == 0
    assert looked_up(live, "two") == 0
    assert looked_up(live, "two") > 40


LENGTH_PREDICTION = 90
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])


@pytest.fixture(scope="module", params=["no draft model", "draft model", "n-gram lookup"])
def live(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    # A pass takes time, in which something can be drafted.
    backend = Paced(
        ScriptedBackend(SCRIPT, slots=2, context_length=512, max_batch_tokens=128), LinearCost(4.0, 0.02, 0.0)
    )
    how: dict[str, Any] = {"draft_backend": "ngram"} if request.param == "n-gram lookup" else {}
    started = LiveServer(settings(**how), backend, draft=half_right() if request.param == "draft model" else None)
    started.wait_until_ready()
    yield started
    started.close()


def expected(sampling: Sampling, length: int = LENGTH_PREDICTION) -> list[int]:
    return plain(SCRIPT, PROMPT_IDS, length, sampling)


def asked(sampling: Sampling, prediction: Sequence[int] | None, **options: Any) -> dict[str, Any]:
    return body_of(sampling, **{"max_tokens": LENGTH_PREDICTION, "prediction_ids": prediction, **options})


def edited(tokens: Sequence[int]) -> list[int]:
    return [*tokens[:20], 3, *tokens[20:50], *tokens[53:70], 4, 5, *tokens[72:]]


@SAMPLINGS
def test_the_text_does_not_depend_on_the_prediction(live: LiveServer, sampling: Sampling) -> None:
    text = expected(sampling)
    predictions = {"good": text, "edited": edited(text), "absurd": [9] * 300, "empty": []}
    found = {name: live.post("/generate", asked(sampling, each)) for name, each in predictions.items()}
    assert all(reply["token_ids"] == text for reply in found.values())
    stats = {name: reply["speculation"] for name, reply in found.items()}
    for each in stats.values():
        assert 0 <= each["prediction_accepted"] <= each["looked_up_accepted"]
        assert each["prediction_accepted"] + each["prediction_rejected"] <= each["looked_up"] <= each["drafted"]
    assert stats["absurd"]["prediction_accepted"] <= 2 and stats["empty"]["looked_up_accepted"] <= LENGTH_PREDICTION
    assert (stats["empty"]["prediction_accepted"], stats["empty"]["prediction_rejected"]) == (0, 0)


def test_a_good_prediction_takes_few_rounds(live: LiveServer) -> None:
    text = expected(WARM)
    for prediction, rounds, accepted in ((text, 16, 60), (edited(text), 30, 45)):
        # A fixed length here and below: what comes while a pass runs does not count.
        stats = live.post("/generate", asked(WARM, prediction, draft_n=6))["speculation"]
        assert stats["rounds"] <= rounds and stats["prediction_accepted"] >= accepted


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"prediction": "a", "prediction_ids": [1]}, "give either prediction or prediction_ids"),
        ({"prediction": "a", "mode": "target"}, "prediction: nothing is drafted in mode target, ask for mode fused"),
        ({"prediction": "a", "strategy": "greedy"}, "prediction: the strategy greedy accepts no draft tokens"),
        ({"prediction_ids": [1, 999]}, "prediction_ids.1: token id 999 is outside of the vocabulary of 258 ids"),
        ({"prediction_ids": [1] * 513}, "prediction_ids: 513 tokens are more than the context of 512 holds"),
        ({"prediction": "a" * 600}, "prediction: 600 tokens are more than the context of 512 holds"),
        ({"prediction": "a" * 9000}, "prediction: 9000 bytes are more than"),
    ],
)
def test_a_prediction_that_makes_no_sense_is_refused(server: LiveServer, given: Any, complaint: str) -> None:
    content = json.dumps({**body_of(GREEDY), **given})
    reply = server.http.post("/generate", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code in (413, 422) and complaint in reply.json()["error"]["message"]


def test_probabilistic_texts_take_predicted_tokens_with_their_probability(serve: Serve) -> None:
    """A predicted token counts as drafted with probability 1, as one that is looked up in the text does."""
    live = serve(ScriptedBackend(SCRIPT), draft=half_right())
    sampling = Sampling(seed=5, temperature=0.2)  # the text is nearly the same whatever is drafted
    body = asked(sampling, expected(sampling), strategy="probabilistic", draft_n=6, explain=True)
    reply = live.post("/generate", body)
    taken = [each for each in reply["decisions"] if each["draft"] is not None and each["q"] == 1.0]
    assert taken and all((each["drawn"] < each["draft_p"]) == (each["verdict"] == "accepted") for each in taken)
