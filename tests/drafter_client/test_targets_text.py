"""Prompts and texts are the target's, whatever the draft model's tokenizer makes of them.

Each draft model here differs from the target in one part of its tokenizer. Either it is refused, or the ids of prompts
and the bytes of texts are those of the verifier's own endpoints.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from drafter_client import AsyncPair, DraftModel, Lookup, Options, Pair
from drafter_client.errors import VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.serve.app import create_app
from specpair.engines.backend import Logits
from specpair.engines.vocabulary import Kind
from tests.backends.toy_tokenizer import BEGIN, DIFFERENCES, END, EQUAL, SPLITS, Parts, ToyTokenizer
from tests.drafter_client.http.fake_transports import Faulty
from tests.drafter_client.support import Verifier, serve_vocabulary, serving
from tests.examples import examples
from tests.gateway.openai_api.conftest import served

GREEDY = Options(max_tokens=24)
MODEL = DraftModel("toy")  # what `loading` says
TEMPLATE = "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}<end>{% endfor %}<think>"


class Toy(ScriptedBackend):
    """Generates any token of its tokenizer. Each token of the prompt counts."""

    def __init__(self, parts: Parts = Parts()) -> None:
        super().__init__(Script(seed=1))
        self.vocabulary = ToyTokenizer(parts)

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        logits = np.random.default_rng(list(tokens)).standard_normal(self.vocabulary.size).astype(np.float32)
        logits[254:256] = -np.inf
        logits[258:] += 3.0  # more tokens of several bytes
        return logits


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    target = Toy()
    target.chat_template = TEMPLATE
    with serving(target) as running:
        yield running


@contextmanager
def loading(parts: Parts) -> Iterator[None]:
    """In the block, the draft model that is loaded has the tokenizer of `parts`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drafter_client.draft_sources.load_draft", lambda *_: Toy(parts))
        yield


def asked(url: str, path: str, **request: Any) -> dict[str, Any]:
    """The reply of one of the verifier's own endpoints."""
    with closing(VerifierClient(url)) as client:
        reply: dict[str, Any] = json.loads(client.call("POST", path, json.dumps(request).encode()))
    return reply


def tokenized(verifier: Verifier, text: str, **flags: bool) -> list[int]:
    """The ids of a text by the verifier's own endpoint."""
    ids: list[int] = asked(verifier.url, "/tokenize", text=text, **flags)["token_ids"]
    return ids


def check_texts(verifier: Verifier, draft: Parts, text: str) -> None:
    """The vocabulary of a pair with this draft model reads and writes texts as the verifier does."""
    with loading(draft), closing(VerifierClient(verifier.url)) as client, MODEL.open(client, 1, 1) as drafting:
        ours, theirs = drafting.vocabulary, verifier.service.engine.info.vocabulary
        for flags in product((False, True), repeat=2):
            named = dict(zip(("add_begin", "parse_control"), flags, strict=True))
            assert ours.encode(text, **named) == tokenized(verifier, text, **named)
        ids = range(theirs.size)
        assert ours.size == theirs.size and [ours.decode([each]) for each in ids] == [
            theirs.decode([each]) for each in ids
        ]
        assert (ours.begin, ours.ends) == (theirs.begin, theirs.ends)


PARTS = st.builds(
    Parts,
    words=st.lists(
        st.text("the 12ab'l\n\u00e9", min_size=2, max_size=4).map(str.encode), min_size=2, max_size=8, unique=True
    ).map(tuple),
    role=st.sampled_from(["<|user|>", "[INST]", "<u>"]),
    whole=st.sampled_from(["<think>", "\n\n\n", "   ", "[x]"]),
    role_kind=st.sampled_from([Kind.CONTROL, Kind.ORDINARY, Kind.UNUSED]),
    is_whole=st.booleans(),
    filler=st.booleans(),
    padding=st.integers(0, 2),
    begin=st.sampled_from([BEGIN, None]),
    ends=st.sampled_from([frozenset({END}), frozenset({END, BEGIN})]),
    adds_begin=st.booleans(),
    space_before=st.booleans(),
    composes=st.booleans(),
    split=st.sampled_from(sorted(SPLITS)),
    longest_first=st.booleans(),
)


@examples(30)
@given(st.data())
def test_random_tokenizers_that_differ_in_one_part(verifier: Verifier, data: st.DataObject) -> None:
    """Hypothesis draws the target's tokenizer, which part differs in the draft model, and a text."""
    target, other = data.draw(PARTS), data.draw(PARTS)
    part = data.draw(st.sampled_from([each.name for each in fields(Parts)]))
    text = data.draw(st.text("the 12ab'lL\n\t\u00e9\u0301<>", max_size=20))
    service = verifier.service
    with pytest.MonkeyPatch.context() as patch:
        serve_vocabulary(patch, service, ToyTokenizer(target))
        try:
            check_texts(verifier, replace(target, **{part: getattr(other, part)}), text)
        except VocabularyMismatch:
            assert part not in {
                "padding",
                "is_whole",
                "filler",
                "adds_begin",
                "space_before",
                "composes",
                "split",
                "longest_first",
            }


CHAT = [{"role": "user", "content": "the 123"}]


def by_pair(url: str) -> tuple[str, str]:
    with Pair(url, MODEL) as pair:
        return pair.generate("the 123", GREEDY).read().text, pair.generate(pair.chat("the 123"), GREEDY).read().text


def by_async_pair(url: str) -> tuple[str, str]:
    async def work() -> tuple[str, str]:
        async with AsyncPair(url, MODEL) as pair:
            raw = await pair.generate("the 123", GREEDY).read()
            return raw.text, (await pair.generate(await pair.chat("the 123"), GREEDY).read()).text

    return asyncio.run(work())


def by_serve(url: str) -> tuple[str, str]:
    with served(create_app(Pair(url, MODEL), Options(), texts=1, queue=1)) as own:
        return by_endpoints(own)


def by_lookup(url: str) -> tuple[str, str]:
    with Pair(url, Lookup()) as pair:
        return pair.generate("the 123", GREEDY).read().text, pair.generate(pair.chat("the 123"), GREEDY).read().text


def by_endpoints(url: str) -> tuple[str, str]:
    """The continuation of a prompt, and the answer in a chat, by OpenAI's endpoints."""
    (raw,) = asked(url, "/v1/completions", prompt="the 123", max_tokens=24, temperature=0)["choices"]
    whole = {"max_tokens": 24, "temperature": 0, "reasoning_format": "none"}
    (chat,) = asked(url, "/v1/chat/completions", messages=CHAT, **whole)["choices"]
    return raw["text"], chat["message"]["content"]


@pytest.mark.parametrize("what", ["space before texts", "a filler for a whole token", "a word less"])
@pytest.mark.parametrize("by", [by_pair, by_async_pair, by_serve, by_lookup])
def test_each_way_to_a_text_gives_the_targets(
    verifier: Verifier, by: Callable[[str], tuple[str, str]], what: str
) -> None:
    with loading(DIFFERENCES[what]):
        assert by(verifier.url) == by_endpoints(verifier.url)


@pytest.mark.parametrize(("what", "each"), [("nothing", []), ("padding", []), ("split: contractions", ["/tokenize"])])
def test_a_text_takes_one_more_request_if_the_verifier_encodes_it(
    verifier: Verifier, what: str, each: list[str]
) -> None:
    """Also in a chat, where a message that spells out a control token divides the prompt into parts."""
    loaded = loading((DIFFERENCES | EQUAL)[what])
    with loaded, closing(Faulty()) as transport, Pair(verifier.url, MODEL, transport=transport) as pair:
        before = len(transport.asked)
        for text in ("the 123", "<end> the <|user|>"):
            pair.encode(text)
            pair.chat(text)
        assert transport.asked[before:] == 4 * each
