"""A warm turn sends only what is new, and the text is the same whatever the verifier still holds."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.http.sent_texts import LEAST, MOST, SentTexts
from drafter_client.http.text_session import TextSession
from specpair.http_service.keys.access import ANYONE, Caller
from specpair.protocol.errors import InvalidRequest, Overloaded, SpecPairError
from specpair.protocol.messages import PrefillRequest, build
from specpair.protocol.prefix import PromptPrefix
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.text_options import TextSpec
from tests.drafter_client.http.fake_transports import Canned, Every, Faulty, body, model_info, over, prefilled, reply
from tests.drafter_client.support import Verifier, plain, read, serving
from verifier_server.earlier_prompts import EarlierPrompts
from verifier_server.generation.prompts import P
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

TARGET = ScriptedBackend(Script(seed=1))
PROMPT = [*range(2 * LEAST)]
HERE, THERE = VerifierAddress("http://here"), VerifierAddress("http://there")


class Asked(EarlierPrompts):
    """Records the prefixes of requests."""

    def __init__(self, table: SessionTable) -> None:
        super().__init__(table)
        self.prefixes: list[PromptPrefix | None] = []

    def whole(self, request: P, caller: Caller) -> P:
        self.prefixes.append(request.prefix)
        return super().whole(request, caller)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with serving(ScriptedBackend(Script(seed=1), context_length=40_000, slots=4)) as running:
        yield running


@pytest.fixture
def asked(verifier: Verifier) -> Asked:
    return forget_texts(verifier)


def forget_texts(verifier: Verifier) -> Asked:
    """Have the verifier hold no ended texts, as after it was started again."""
    verifier.service.earlier = asked = Asked(verifier.service.sessions)
    return asked


def lengths(asked: Asked) -> list[int]:
    return [0 if each is None else each.length for each in asked.prefixes]


def test_a_warm_turn_of_32k_sends_what_is_new_and_200_bytes(verifier: Verifier) -> None:
    transport = Faulty()
    given = Options(max_tokens=20).request() | {"self_continue": True, "next_in_ms": 12.345}  # as a drafter says it
    long, new = [index % 256 for index in range(32 * 1024)], [*range(200, 0, -1)]
    known: list[int] = []
    with over(transport, verifier.url) as client:
        client.model()
        for prompt in (long, known, new):  # the last one is that much without what comes before it
            text = TextSession(prompt)
            opened = client.prefill(text, given)
            client.release(text.session_id)
            text.known += opened.tokens
            known += text.known + new
    sent = [len(each) for path, each in zip(transport.asked, transport.bodies, strict=True) if path == "/prefill"]
    as_json = [len(json.dumps(each, separators=(",", ":"))) for each in (long, new)]
    assert 100_000 < as_json[0] < sent[0]
    assert as_json[1] < sent[1] <= as_json[1] + 200
    assert sent[2] < sent[1] < sent[2] + 110, "to name the text"


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])
def test_a_chat_goes_on_when_the_verifier_holds_its_texts_no_longer(
    verifier: Verifier, asked: Asked, mode: Mode
) -> None:
    options = Options(max_tokens=30, temperature=0.8, seed=3, mode=mode)
    with Pair(verifier.url, DraftModel(Path("1"), "scripted")) as pair:
        known, said = PROMPT, 0
        for turn in range(4):
            if turn == 2:
                assert lengths(asked) == [0, len(PROMPT) + said]
                asked = forget_texts(verifier)
            with pair.generate(known, options) as text:
                tokens = read(text, 1, lambda: None)
            assert tokens == plain(TARGET, known, 30, options.sampling)
            said, known = len(tokens), known + tokens + [*b"next"]
    refused, whole, last = lengths(asked)
    assert refused > 0 and whole == 0 and last == refused + said + len(b"next")


def test_a_lost_reply_is_asked_for_again_by_the_same_bytes(verifier: Verifier, asked: Asked) -> None:
    transport = Faulty(after=Every(3))
    with over(transport, verifier.url) as client:
        client.model()
        first = TextSession(PROMPT)
        client.prefill(first, {"max_tokens": 20})
        second = TextSession([*PROMPT, 1])
        opened = client.prefill(second, {"max_tokens": 20})
        assert transport.bodies[2] == transport.bodies[3] and lengths(asked) == [0, len(PROMPT), len(PROMPT)]
        assert opened.tokens == plain(TARGET, [*PROMPT, 1], 1) and verifier.sessions == 2
        for each in (first, second):
            client.release(each.session_id)


def test_a_text_whose_session_is_lost_is_resumed_without_its_prompt(verifier: Verifier, asked: Asked) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        client.model()
        text = TextSession(PROMPT)
        text.known += client.prefill(text, {"max_tokens": 20, "seed": 1}).tokens
        client.release(text.session_id)
        assert client.prefill(text, {"max_tokens": 20, "seed": 1}).tokens == plain(TARGET, PROMPT, 2)[1:]
        client.release(text.session_id)
    assert lengths(asked) == [0, len(PROMPT)]


def canned(*answers: httpx.Response, prefixes: bool) -> tuple[VerifierClient, Canned]:
    """A client that knows whether the verifier takes prefixes."""
    transport = Canned(reply(200, body(model_info(prefixes=prefixes))), *answers)
    client = VerifierClient("http://v", transport=transport)
    client.model()
    return client, transport


def opened(prompt_ids: list[int], position: int) -> httpx.Response:
    return reply(200, body(prefilled(prompt_ids, [9])) | {"position": position})


def sent_prefixes(transport: Canned) -> list[bool]:
    return [b'"prefix"' in each for each in transport.bodies[1:]]


def test_an_older_verifier_gets_whole_prompts() -> None:
    client, transport = canned(*[opened(PROMPT, len(PROMPT))] * 2, prefixes=False)
    for _ in range(2):
        client.prefill(TextSession(PROMPT), {})
    assert sent_prefixes(transport) == [False, False]


def test_an_older_verifier_behind_a_router_gets_the_whole_prompt_in_the_same_call() -> None:
    """And from then on, until the service says again that it takes prefixes."""
    extra = InvalidRequest("prefix: Extra inputs are not permitted", param="prefix")
    whole = opened(PROMPT, len(PROMPT))
    client, transport = canned(whole, reply(422, extra.body()), whole, whole, prefixes=True)
    for _ in range(3):
        client.prefill(TextSession(PROMPT), {})
    assert sent_prefixes(transport) == [False, True, False, False]


@pytest.mark.parametrize("refusal", [InvalidRequest("seed: it is wrong", param="seed"), Overloaded("it is full")])
def test_other_refusals_are_raised(refusal: SpecPairError) -> None:
    client, transport = canned(opened(PROMPT, len(PROMPT)), reply(refusal.status, refusal.body()), prefixes=True)
    client.prefill(TextSession(PROMPT), {})
    with pytest.raises(type(refusal)):
        client.prefill(TextSession(PROMPT), {})
    assert sent_prefixes(transport) == [False, True]


TEXTS = st.tuples(st.integers(0, 200), st.lists(st.integers(0, 3), max_size=100))


def grown(drawn: tuple[int, list[int]]) -> list[int]:
    """Ids that begin as others do, for so many, and end otherwise."""
    return [*range(1000, 1000 + drawn[0]), *drawn[1], 4]


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "salt"]), st.booleans()), max_size=6), TEXTS)
def test_the_verifier_finds_the_prompt_that_was_meant(
    earlier: list[tuple[tuple[int, list[int]], str, bool]], prompt: tuple[int, list[int]]
) -> None:
    sent, held = SentTexts(), EarlierPrompts(SessionTable(lambda: 0.0, 1.0, 1, lambda _: None))
    sent.serves(HERE, prefixes=True)
    shared = [0]
    for drawn, salt, here in earlier:
        text = TextSession(grown(drawn))
        sent.note(HERE if here else THERE, text, salt)
        if here:
            session = Session(text.session_id, text.known, 1, TextSpec(seed=0), 1000, {999})
            session.scope = ("", salt)
            held.keep(session)
            shared += [common_prefix(text.known, grown(prompt))] if not salt else []
    whole = TextSession(grown(prompt))
    prefix = sent.prefix(HERE, whole.prompt_ids, "")
    assert (prefix.length if prefix else LEAST) == max(LEAST, *shared), "the longest, if it saves enough"
    request = build(PrefillRequest, whole.request(prefix))
    assert held.whole(request, ANYONE).prompt_ids == whole.prompt_ids


def test_the_latest_texts_are_remembered_up_to_a_number_of_ids() -> None:
    sent, texts = SentTexts(), [TextSession([number] * (MOST // 2)) for number in range(3)]
    sent.serves(HERE, prefixes=True)
    for each in texts:
        sent.note(HERE, each, "")
    assert [sent.prefix(HERE, each.prompt_ids, "") is not None for each in texts] == [False, True, True]
    texts[2].known += [0] * MOST
    sent.note(HERE, texts[2], "")
    assert [sent.prefix(HERE, each.prompt_ids, "") is not None for each in texts] == [False, False, True]
