"""Several verifiers of one pair: a text goes to the fastest, and on at another one, and is the same text."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Outage, Pair, Tokens
from drafter_client.errors import BadUrl, ConnectionLost, ModelChanged, VerifierUnreachable
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import BackendError
from specpair.protocol.errors import EngineError
from tests.drafter_client.another_model import Address, Links, swapped_vocabulary
from tests.drafter_client.support import Held, Verifier, forget_all, held, plain, read, serving
from tests.waiting import until

PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
TARGET = ScriptedBackend(Script(seed=1))
WARM = Options(max_tokens=200, temperature=0.8, seed=3)
GREEDY = Options(max_tokens=200, temperature=0.0)
pytestmark = pytest.mark.usefixtures("no_waiting")
EACH_MODE = pytest.mark.parametrize("mode", Mode)


@pytest.fixture(scope="module")
def verifiers() -> Iterator[list[Verifier]]:
    """Three of one model."""
    with ExitStack() as stack:
        slow = [Held(Script(seed=1, seconds_per_pass=0.001)) for _ in range(3)]
        yield [stack.enter_context(serving(each, draft_backend="ngram")) for each in slow]


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Verifier]]:
    """Those of other models."""
    with ExitStack() as stack:
        backends = {
            "second": ScriptedBackend(Script(seed=2)),
            "vocabulary": swapped_vocabulary(ScriptedBackend(Script(seed=1))),
        }
        yield {name: stack.enter_context(serving(backend)) for name, backend in backends.items()}


def urls(verifiers: list[Verifier]) -> str:
    return ",".join(each.url for each in verifiers)


def expected(options: Options = WARM) -> list[int]:
    return plain(TARGET, TARGET.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


def test_a_text_goes_to_the_verifier_with_the_shortest_round_trip(verifiers: list[Verifier], links: Links) -> None:
    links.slow = {verifiers[0].url: 0.15, verifiers[2].url: 0.3}  # far more than the round trips of a busy machine
    with Pair(urls(verifiers), TOY) as pair:
        done = pair.generate(PROMPT, WARM).read()
    assert done.token_ids == expected()
    assert done.stats.verifiers == [verifiers[1].url] == done.stats.metrics()["verifiers"]


@EACH_MODE
@pytest.mark.parametrize("options", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_text_goes_on_when_its_verifier_is_lost(
    verifiers: list[Verifier], links: Links, mode: Mode, options: Options
) -> None:
    outages: list[Outage] = []
    notices: list[str] = []
    with Pair(urls(verifiers), TOY, on_outage=outages.append, on_notice=notices.append) as pair:
        text = pair.generate(PROMPT, replace(options, mode=mode))
        then = held(verifiers[0], 50, lambda: links.out.add(text.stats.verifiers[0]))
        for each in verifiers[1:]:
            then = held(each, 50, then)
        tokens = read(text, 50, then)
        assert tokens == expected(options)
        # In mode auto the next stretch may open the session at the other one.
        assert len(text.stats.resumed) == 1 or (mode is Mode.AUTO and not text.stats.resumed)
        first, second = text.stats.verifiers
        assert first != second and not outages
        assert any(f"the verifier at {first} is away" in each for each in notices)
        again = pair.generate(PROMPT, replace(options, mode=mode)).read()
        assert again.token_ids == expected(options) and first not in again.stats.verifiers
        links.out.clear()
        until(lambda: f"the verifier at {first} is ready" in notices, "it is not taken again")
    forget_all(next(each for each in verifiers if each.url == first))


@EACH_MODE
def test_a_text_leaves_a_verifier_that_drains(verifiers: list[Verifier], links: Links, mode: Mode) -> None:
    options, other = replace(WARM, max_tokens=300, mode=mode), verifiers[0].url
    links.out.add(other)  # so that the text begins at the other one
    with serving(Held(Script(seed=1, seconds_per_pass=0.001)), draft_backend="ngram") as draining:
        ready, seen = threading.Event(), threading.Event()

        def notice(said: str) -> None:
            if said == f"the verifier at {other} is ready":
                ready.set()
            if "it is being stopped" in said:
                seen.set()

        def drain() -> None:
            links.out.clear()
            assert ready.wait(10)
            draining.service.draining.begun = True
            assert seen.wait(10)

        with Pair([draining.url, other], TOY, on_notice=notice) as pair:
            text = pair.generate(PROMPT, options)
            assert read(text, 20, held(draining, 20, drain)) == expected(options)
            assert text.stats.verifiers == [draining.url, other]
            assert draining.sessions == 0


def test_all_are_gone_and_one_is_back(verifiers: list[Verifier], links: Links) -> None:
    outages: list[Outage] = []

    def told(outage: Outage) -> None:
        outages.append(outage)
        links.out.discard(verifiers[2].url)

    with Pair(urls(verifiers), TOY, on_outage=told) as pair:
        text = pair.generate(PROMPT, WARM)
        tokens = read(text, 50, lambda: links.out.update(each.url for each in verifiers))
        assert tokens == expected() and text.stats.verifiers[-1] == verifiers[2].url
    assert [outage.over for outage in outages] == [False, True]
    assert all(each.url in outages[0].why for each in verifiers)
    links.out.clear()
    for each in verifiers:
        forget_all(each)


def test_no_text_goes_to_another_model(verifiers: list[Verifier], others: dict[str, Verifier], links: Links) -> None:
    notices: list[str] = []
    second, vocabulary = others["second"].url, others["vocabulary"].url
    links.slow = {verifiers[0].url: 0.01}  # it would be faster
    given = [verifiers[0].url, second, vocabulary]
    with Pair(given, TOY, on_notice=notices.append, patience=0.3) as pair:
        assert pair.generate(PROMPT, WARM).read().stats.verifiers == [verifiers[0].url]
        assert sorted(notices) == sorted(
            [
                f"the verifier at {second} is not taken: it serves scripted-2, and the texts are those of scripted-1",
                f"the verifier at {vocabulary} is not taken: it serves scripted-1 with another vocabulary",
            ]
        )
        text = pair.generate(PROMPT, WARM)
        tokens: list[int] = []
        with pytest.raises(ConnectionLost, match=r"waited \d+ s for the verifier"):
            read(text, 50, lambda: links.out.add(verifiers[0].url), tokens)
        assert tokens == expected()[: len(tokens)] and text.stats.verifiers == [verifiers[0].url]
    links.out.clear()
    forget_all(verifiers[0])


def test_one_of_several_need_not_be_there(verifiers: list[Verifier]) -> None:
    notices: list[str] = []
    with Pair(f"127.0.0.1:1, {verifiers[0].url}", TOY, on_notice=notices.append) as pair:
        assert pair.generate(PROMPT, WARM).read().token_ids == expected()
    assert notices == ["the verifier at 127.0.0.1:1 is away: nothing answers"]


def test_none_is_there() -> None:
    with pytest.raises(VerifierUnreachable, match=r"no verifier is ready: 127.0.0.1:1: nothing answers; 127.0.0.1:2"):
        Pair("127.0.0.1:1,127.0.0.1:2", None, on_notice=lambda _: None)
    with pytest.raises(BadUrl, match="no verifier is named"):
        Pair(" , ", None)


class Breaking(ScriptedBackend):
    """Fails in each pass while `broken` is set."""

    broken = False

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.broken:
            raise BackendError("what no engine can do")
        return super()._forward(batch)


def test_a_text_that_every_engine_fails_at_ends_with_the_error() -> None:
    with ExitStack() as stack:
        engines = [Breaking(Script(seed=1)) for _ in range(2)]
        running = [stack.enter_context(serving(each)) for each in engines]
        with Pair(urls(running), TOY, on_notice=lambda _: None) as pair:
            for each in engines:
                each.broken = True
            with pytest.raises(EngineError, match="what no engine can do"):
                pair.generate(PROMPT, WARM).read()
            engines[1].broken = False
            assert pair.generate(PROMPT, WARM).read().token_ids == expected()


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])
def test_a_router_may_lead_a_text_back_to_a_verifier_that_it_had_left(verifiers: list[Verifier], mode: Mode) -> None:
    """As after an outage: there, the text's session has the tokens of before."""
    router = Address({"first": verifiers[0].url, "second": verifiers[1].url}, "first")
    turns = {50: "second", 100: "first", 150: "second"}
    tokens: list[int] = []
    with router, Pair("http://router", TOY, transport=router) as pair:
        for event in pair.generate(PROMPT, replace(WARM, mode=mode)):
            if isinstance(event, Tokens):
                tokens += [each.id for each in event.tokens]
                if len(tokens) > min(turns, default=200):
                    router.turn(turns.pop(min(turns)))
    assert tokens == expected() and not turns


def test_all_verifiers_change_to_another_model(verifiers: list[Verifier], others: dict[str, Verifier]) -> None:
    """A text under way ends with an error, and the next one is the new model's."""
    urls = {"first": verifiers[0].url, "second": others["second"].url}
    a, b = Address(urls, "first"), Address(urls, "first")

    class Both(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return (a if request.url.host == "a" else b).handle_request(request)

    def change() -> None:
        a.turn("second")
        b.turn("second")

    notices: list[str] = []
    with a, b, Pair("http://a,http://b", TOY, transport=Both(), on_notice=notices.append) as pair:
        text = pair.generate(PROMPT, replace(WARM, mode=Mode.TARGET))
        tokens: list[int] = []
        with pytest.raises(ModelChanged, match="serves scripted-2"):
            read(text, 50, change, tokens)
        assert tokens == expected()[: len(tokens)]

        def taken_over() -> bool:
            pair.look()
            return pair.target.name == "scripted-2"

        until(taken_over, "it is not taken over")
        done = pair.generate(PROMPT, WARM).read()
        assert done.stats.model == "scripted-2" and done.token_ids != expected()
        assert sum("it serves scripted-2" in each for each in notices) == 2
        a.turn("first")  # is the other model now
        until(lambda: any("it serves scripted-1" in each for each in notices), "it is not refused")
        assert pair.generate(PROMPT, WARM).read().token_ids == done.token_ids
