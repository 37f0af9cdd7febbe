"""A pair that lives on while another model, or another service of it, comes to the verifier's address."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Lookup, Mode, Options, Pair
from drafter_client.errors import ModelChanged, VocabularyMismatch
from tests.drafter_client.another_model import Address, Router, swapped_vocabulary
from tests.drafter_client.support import Held, Verifier, held, plain, read, serving

URL = "http://verifier"
PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
EACH_MODE = pytest.mark.parametrize("mode", Mode)
LONG = Options(max_tokens=200, temperature=0.8, seed=3)
MODELS: dict[str, Callable[[], ScriptedBackend]] = {
    "first": lambda: Held(Script(seed=1, seconds_per_pass=0.001)),
    "second": lambda: ScriptedBackend(Script(seed=2)),
    "smaller": lambda: ScriptedBackend(Script(seed=1), slots=1, context_length=100, max_batch_tokens=4),
    "wider": lambda: ScriptedBackend(Script(seed=1), slots=7),
    "alone": lambda: ScriptedBackend(Script(seed=1)),
    "foreign": lambda: swapped_vocabulary(ScriptedBackend(Script(seed=3))),
}


@pytest.fixture(scope="module")
def verifiers() -> Iterator[dict[str, Verifier]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(serving(make(), draft_backend=None if name == "alone" else "ngram", slots="auto"))
            for name, make in MODELS.items()
        }


@pytest.fixture
def address(verifiers: dict[str, Verifier], no_waiting: None) -> Iterator[Address]:
    with Address({name: verifier.url for name, verifier in verifiers.items()}, "first") as address:
        yield address


def expected(model: str, options: Options = LONG) -> list[int]:
    backend = MODELS[model]()
    return plain(backend, backend.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


@EACH_MODE
def test_the_next_text_is_the_new_models_under_its_name(address: Address, mode: Mode) -> None:
    options = replace(LONG, mode=mode, max_tokens=40)
    with Pair(URL, TOY, transport=address) as pair:
        first = pair.generate(PROMPT, options).read()
        address.current = "second"
        before = pair.paired
        second = pair.generate(PROMPT, options).read()
        assert (first.stats.model, first.token_ids) == ("scripted-1", expected("first", options))
        assert (second.stats.model, second.token_ids) == ("scripted-2", expected("second", options))
        now = pair.paired
        assert pair.target.name == "scripted-2"
        assert now.experience is not before.experience and now.selection is not before.selection


@EACH_MODE
@pytest.mark.parametrize("after", [1, 60])
def test_a_text_does_not_go_on_with_another_models_tokens(
    address: Address, verifiers: dict[str, Verifier], mode: Mode, after: int
) -> None:
    with Pair(URL, TOY, transport=address) as pair:
        text = pair.generate(PROMPT, replace(LONG, mode=mode))
        with pytest.raises(ModelChanged, match="serves scripted-2 now, and the text was begun by scripted-1"):
            read(text, after, held(verifiers["first"], after, lambda: address.turn("second")))
        assert text.stats.token_ids == expected("first")[: len(text.stats.token_ids)]
        assert pair.generate(PROMPT, replace(LONG, mode=mode)).read().token_ids == expected("second")


@EACH_MODE
def test_a_text_goes_on_with_a_smaller_context_and_fewer_slots(
    address: Address, verifiers: dict[str, Verifier], mode: Mode
) -> None:
    with Pair(URL, TOY, transport=address) as pair:
        text = pair.generate(PROMPT, replace(LONG, mode=mode))
        tokens = read(text, 20, held(verifiers["first"], 20, lambda: address.turn("smaller")))
        context = 100 - len(text.prompt_ids)
        assert tokens == expected("first")[: max(context, len(tokens))] and len(tokens) < 200
        assert (text.stats.finish_reason, text.stats.context) == ("length", 100)
        assert (pair.target.context_length, pair.target.rows) == (100, 1)


@EACH_MODE
def test_replicas_that_serve_one_model_otherwise_may_stand_behind_one_address(
    verifiers: dict[str, Verifier], mode: Mode
) -> None:
    """As while a router's replicas get other settings, one after the other."""
    urls = {name: verifier.url for name, verifier in verifiers.items()}
    options = replace(LONG, mode=mode, max_tokens=60)
    with Router(urls, ("first", "wider")) as router, Pair(URL, TOY, texts=4, transport=router) as pair:
        while len(router.served) < 2:
            texts = [pair.generate(PROMPT, options) for _ in range(4)]
            with ThreadPoolExecutor(4) as threads:
                for done in [threads.submit(text.read) for text in texts]:
                    assert done.result().token_ids == expected("first", options)
        text = pair.generate(PROMPT, options)
        assert read(text, 20, lambda: router.swap()) == expected("first", options)


@EACH_MODE
def test_what_does_not_pair_is_refused_until_it_does(address: Address, mode: Mode) -> None:
    options = replace(LONG, mode=mode, max_tokens=30)
    with Pair(URL, TOY, transport=address) as pair:
        address.turn("foreign")
        for _ in range(2):
            with pytest.raises(VocabularyMismatch, match="scripted-1 cannot draft for scripted-3") as caught:
                pair.generate(PROMPT, options).read()
            assert str(caught.value).startswith(
                f"the verifier at {URL} serves scripted-3 now, in place of scripted-1: "
            )
        address.turn("first")
        assert pair.generate(PROMPT, options).read().token_ids == expected("first", options)


@EACH_MODE
def test_a_text_under_way_that_does_not_pair_any_more_ends_with_both_names_and_the_reason(
    address: Address, verifiers: dict[str, Verifier], mode: Mode
) -> None:
    with Pair(URL, TOY, transport=address) as pair:
        text = pair.generate(PROMPT, replace(LONG, mode=mode))
        with pytest.raises(VocabularyMismatch) as caught:
            read(text, 20, held(verifiers["first"], 20, lambda: address.turn("foreign")))
        assert pair.refusal is not None and "serves scripted-3 now, in place of scripted-1: " in str(pair.refusal)
    changed = f"the verifier at {URL} serves scripted-3 now, and the text was begun by scripted-1: "
    assert str(caught.value).startswith(f"{changed}scripted-1 cannot draft for scripted-3")


@pytest.mark.parametrize("after", [0, 20])
@pytest.mark.parametrize("mode", [Mode.FUSED, Mode.AUTO])
def test_a_text_goes_on_alone_where_the_verifier_has_no_draft_model_any_more(
    address: Address, mode: Mode, after: int
) -> None:
    with Pair(URL, None, transport=address) as pair:
        text = pair.generate(PROMPT, replace(LONG, mode=mode))
        if not after:
            address.turn("alone")
        assert read(text, after, lambda: address.turn("alone") if after else None) == expected("first")
        assert text.stats.finish_reason == "length" and pair.target.draft_model is None
        assert mode is Mode.AUTO or text.stats.mode == Mode.TARGET


def test_a_prompt_of_another_vocabulary_is_not_begun_and_the_next_is(address: Address) -> None:
    with Pair(URL, Lookup(), transport=address) as pair:
        assert pair.encode("ab")[-2:] == [97, 98]
        address.turn("foreign")
        with pytest.raises(ModelChanged, match="the prompt was made for scripted-1: begin the text again"):
            pair.generate(PROMPT, LONG).read()
        assert pair.vocabulary.decode([97, 98]) == b"ba"
        assert pair.generate(PROMPT, LONG).read().token_ids == expected("foreign")


def test_a_text_that_is_pinned_begins_with_its_target_only(address: Address) -> None:
    with Pair(URL, TOY, transport=address) as pair:
        identity = pair.target.identity
        assert pair.generate(PROMPT, LONG, identity=identity).read().token_ids == expected("first")
        address.turn("second")
        for _ in range(2):  # the first by the reply, the second by what is known
            with pytest.raises(ModelChanged, match="serves scripted-2 now, and the prompt was made for"):
                pair.generate(PROMPT, LONG, identity=identity).read()


def test_a_prompt_that_the_new_model_refuses_outright(address: Address) -> None:
    """Its refusal comes in place of the reply that would tell its identity."""
    with Pair(URL, TOY, transport=address) as pair:
        address.turn("smaller")
        with pytest.raises(Exception, match="the context holds 100"):
            pair.generate([7] * 200, LONG).read()
        assert pair.target.context_length == 100
