"""Requests of a session: lost responses, cookies, refusals; and the handshake that compares the vocabularies."""

import json
from contextlib import closing

import httpx
import pytest

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from drafter_client.errors import BadKey, VocabularyMismatch
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import check_vocabulary
from drafter_client.http.requests import SessionCookies
from drafter_client.http.text_session import TextSession
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.http_service.keys import access as addresses
from specpair.protocol.errors import Forbidden, UnknownSession
from specpair.protocol.service_responses import HealthResponse
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import LOST, Every, Faulty, over
from tests.drafter_client.support import PROMPT, Verifier, generate, options_of, plain, serving


def test_a_verify_whose_response_was_lost_is_answered_from_the_record(verifier: Verifier) -> None:
    transport = Faulty(after=Every(2))
    with over(transport, verifier.url) as client:
        opened = client.prefill(TextSession(PROMPT), {"max_tokens": 20})
        position = len(PROMPT) + 1
        response = client.verify(opened.session_id, Draft.chain(position, [1, 2, 3]))
        again = client.verify(opened.session_id, Draft.chain(position, [1, 2, 3]))
        client.release(opened.session_id)
    first, second = transport.bodies[1:3]
    assert first == second and json.loads(first)["position"] == position
    assert response.judged == again.judged == 0  # the model ran for the response that was lost
    assert response.tokens == again.tokens == plain(ScriptedBackend(Script(seed=1)), PROMPT, 2)[1:]


def test_a_retried_prefill_finds_the_session_of_the_first_attempt(verifier: Verifier) -> None:
    def lose_first(number: int, path: str) -> None:
        if number == 0:
            raise LOST

    transport = Faulty(after=lose_first)
    with over(transport, verifier.url) as client:
        opened = client.prefill(TextSession(PROMPT), {"max_tokens": 20, "temperature": 1.0})
        assert transport.asked == ["/prefill", "/prefill"] and transport.bodies[0] == transport.bodies[1]
        assert verifier.sessions == 1
        seed = opened.sampling.seed  # drawn by the verifier, for the first of the two
        expected = plain(ScriptedBackend(Script(seed=1)), PROMPT, 1, Sampling(seed, 1.0))
        assert opened.tokens == expected
        client.release(opened.session_id)


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=3, temperature=0.8)], ids=["greedy", "warm"])
def test_the_text_does_not_depend_on_lost_messages(
    verifier: Verifier, sampling: Sampling, when: str, every: int
) -> None:
    transport = Faulty(**{when: Every(every)})
    with over(transport, verifier.url) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=1, agreement=0.6)), sampling)
        run = generate(client, drafter, 3, **options_of(sampling, 20))
    assert run.tokens == plain(ScriptedBackend(Script(seed=1)), PROMPT, 20, sampling)
    repeated = len(transport.asked) - len(set(zip(transport.asked, transport.bodies, strict=True)))
    assert repeated >= len(transport.asked) // every - 1 > 0
    assert verifier.sessions == 0


URL = "http://balancer"


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        (["a=1; Path=/; HttpOnly"], b"a=1"),
        (["a=1", "b=2", "a=3=="], b"b=2; a=3=="),
        (["a=1", "a=; Max-Age=0"], None),
        (["a=1", "nonsense", "=x", f"b={'x' * 5000}"], b"a=1"),
        ([f"c{number}=" for number in range(12)], b"; ".join(b"c%d=" % number for number in range(8))),
        ([], None),
    ],
)
def test_what_is_sent_back(said: list[str], sent: bytes | None) -> None:
    cookies = SessionCookies()
    cookies.keep(URL, "s", said)
    assert cookies.header(URL, "s") == ([] if sent is None else [(b"Cookie", sent)])
    assert cookies.header(URL, "another") == cookies.header("http://other", "s") == []
    cookies.forget(URL, "s")
    assert cookies.header(URL, "s") == []


def test_all_requests_of_a_session_bear_its_cookies() -> None:
    """Also those of its other connections. A balancer may name another verifier later."""
    asked: list[tuple[str, str | None, str | None]] = []
    nodes = iter(["one", "two", "two", "two"])

    def balancer(request: httpx.Request) -> httpx.Response:
        headers = request.headers
        asked.append((f"{request.method} {request.url.path}", headers.get("cookie"), headers.get("x-session-affinity")))
        refusal = {"error": {"code": "unknown_session", "message": "it is not here"}}
        return httpx.Response(404, json=refusal, headers=[("Set-Cookie", f"node={next(nodes)}; HttpOnly")])

    text = TextSession([1, 2])
    with closing(VerifierClient(URL, transport=httpx.MockTransport(balancer))) as client:
        with pytest.raises(UnknownSession):
            client.prefill(text, {})
        with closing(client.another()) as other:
            with pytest.raises(UnknownSession):
                other.verify(text.session_id, Draft(2))
            with pytest.raises(UnknownSession):
                [*other.stream(text.session_id, 2)]
        client.release(text.session_id)
    assert asked == [
        ("POST /prefill", None, "cookie"),
        ("POST /verify", "node=one", "cookie"),
        (f"GET /sessions/{text.session_id}/stream", "node=two", "cookie"),
        (f"DELETE /sessions/{text.session_id}", "node=two", "cookie"),
    ]


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection comes from an address on the Internet."""
    stranger = addresses.stranger
    monkeypatch.setattr(
        "specpair.http_service.keys.access.stranger", lambda _, forwarded: stranger("203.0.113.9", forwarded)
    )


@pytest.mark.usefixtures("far_away")
def test_a_client_that_will_be_refused_does_not_wait_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def health(_service: object) -> HealthResponse:
        return HealthResponse(status="loading", progress=0.1)

    monkeypatch.setattr("verifier_server.service.Service.health", health)
    with (
        serving() as verifier,
        closing(VerifierClient(verifier.url)) as client,
        pytest.raises(Forbidden, match="VERIFIER_INSECURE=1"),
    ):
        client.wait_until_ready(patience=0.0)
    with (
        serving(api_key="sesame") as verifier,
        closing(VerifierClient(verifier.url, api_key="wrong")) as client,
        pytest.raises(BadKey, match="does not take this key: give it as api_key="),
    ):
        client.wait_until_ready(patience=0.0)


def _bytes_but(**changes: object) -> Vocabulary:
    """The toy vocabulary with other attributes."""
    vocabulary = ByteVocabulary()
    for name, value in changes.items():
        setattr(vocabulary, name, value)
    return vocabulary


def _pieces_with(token: int, piece: bytes) -> list[bytes]:
    pieces = ByteVocabulary().pieces
    return [*pieces[:token], piece, *pieces[token + 1 :]]


@pytest.mark.parametrize("size", [258, 300, 4096])
def test_the_same_vocabulary_is_accepted_with_any_padding(verifier: Verifier, size: int) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        assert check_vocabulary(client, ByteVocabulary(size), "draft").name == "scripted-1"
    padded = ScriptedBackend(Script(vocabulary_size=size))
    with serving(padded) as larger, closing(VerifierClient(larger.url)) as client:
        assert check_vocabulary(client, ByteVocabulary(), "draft").vocabulary.size == size


@pytest.mark.parametrize("token", [0, 65, 254, 255])
def test_a_foreign_vocabulary_is_refused_with_the_first_different_id(verifier: Verifier, token: int) -> None:
    foreign = _bytes_but(pieces=_pieces_with(token, b"foreign"))
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(VocabularyMismatch) as caught:
        check_vocabulary(client, foreign, "llama-draft")
    assert str(caught.value) == (
        "llama-draft cannot draft for scripted-1: choose a draft model of the target's own family. (token ids below "
        f"258 stand for different bytes (sizes 258 and 258): the first is id {token}, b'foreign' in the draft model)"
    )


@pytest.mark.parametrize("filler", [False, True])
def test_the_vocabulary_is_fetched_only_where_fingerprints_differ(verifier: Verifier, filler: bool) -> None:
    """Ids that the draft model leaves unused are no difference."""
    kinds = [Kind.UNUSED if filler and token == 100 else kind for token, kind in enumerate(ByteVocabulary().kinds)]
    with closing(Faulty()) as transport:
        check_vocabulary(VerifierClient(verifier.url, transport=transport), _bytes_but(kinds=kinds), "draft")
        assert transport.asked == ["/model", *(["/vocabulary"] if filler else [])]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"begin": None}, "the begin-of-text id is None here and 256 there"),
        ({"begin": 7}, "the begin-of-text id is 7 here and 256 there"),
        ({"ends": frozenset({256, 257})}, r"the end-of-text ids are \[256, 257\] here and \[257\] there"),
        ({"ends": frozenset()}, r"the end-of-text ids are \[\] here and \[257\] there"),
    ],
)
def test_different_begin_and_end_ids_are_refused_by_name(
    verifier: Verifier, changes: dict[str, object], words: str
) -> None:
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(VocabularyMismatch, match=words):
        check_vocabulary(client, _bytes_but(**changes), "draft")
