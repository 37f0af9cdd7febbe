"""`suffix`: the prompt for a gap has the ids of the vocabulary's own tokens, in each family's order."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.scripted import BEGIN, ByteVocabulary
from gateway.openai_api.prompts import infill_ids, infill_tokens
from specpair.engines.vocabulary import Kind, Vocabulary
from tests.gateway.openai_api.conftest import drafting, serving, target
from tests.verifier_server.conftest import LiveServer

BEFORE, BEHIND = "def f(x):", "return y"
QWEN = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
SPELLINGS = [
    QWEN,
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],  # noqa: RUF001
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
    [" <PRE>", " <SUF>", " <MID>"],
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
]
PREFIX, SUFFIX, MIDDLE = 258, 259, 260  # ids


class Infilling(ByteVocabulary):
    """A vocabulary of bytes with further control tokens."""

    def __init__(self, names: list[str], kind: Kind = Kind.CONTROL) -> None:
        super().__init__(258 + len(names))
        self.pieces[258:] = [name.encode() for name in names]
        self.kinds[258:] = [kind] * len(names)

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        names = {self.spelled(at): at for at in range(256, self.size) if parse_control}
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
        ids = (each for part in parts for each in ([names[part]] if part in names else part.encode()))
        return [*([BEGIN] if add_begin else []), *ids]


class Spaced(Infilling):
    """One that puts a space before a text, but not behind a control token."""

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        begins = parse_control and text.startswith("<end>")
        spaced = text if begins or not text else " " + text
        return super().encode(spaced, add_begin=add_begin, parse_control=parse_control)


def _ids(vocabulary: Vocabulary, before: str = BEFORE, behind: str = BEHIND) -> list[int]:
    tokens = infill_tokens(vocabulary)
    assert tokens is not None
    return infill_ids(tokens, vocabulary, before, behind)


@pytest.mark.parametrize("names", SPELLINGS, ids=lambda names: names[0])
@pytest.mark.parametrize("kind", [Kind.CONTROL, Kind.ORDINARY])  # the files of some models do not call them special
def test_the_text_before_the_gap_comes_first(names: list[str], kind: Kind) -> None:
    expected = [BEGIN, PREFIX, *BEFORE.encode(), SUFFIX, *BEHIND.encode(), MIDDLE]
    assert _ids(Infilling(names, kind)) == expected


def test_codestral_has_the_text_behind_the_gap_first() -> None:
    ids = _ids(Infilling(["[PREFIX]", "[SUFFIX]"]))
    assert ids == [BEGIN, SUFFIX, *BEHIND.encode(), PREFIX, *BEFORE.encode()]


def test_what_stands_behind_the_gap_gets_no_space() -> None:
    assert _ids(Spaced(QWEN)) == [BEGIN, PREFIX, *b" def f(x):", SUFFIX, *b"return y", MIDDLE]


def test_a_family_needs_all_its_tokens() -> None:
    assert infill_tokens(ByteVocabulary()) is None and infill_tokens(Infilling(QWEN[:2])) is None
    assert infill_tokens(Infilling(QWEN, Kind.UNUSED)) is None
    assert infill_tokens(Infilling([*QWEN[:2], "<MID>", "[SUFFIX]", "[PREFIX]"])) == (262, 261, None)


@pytest.fixture(scope="module")
def filling() -> Iterator[LiveServer]:
    """A verifier whose target has the tokens."""
    backend = target()
    backend.vocabulary = Infilling(QWEN)
    with serving(backend) as live:
        yield live


@pytest.fixture(scope="module", params=["verifier", "drafter"])
def url(request: pytest.FixtureRequest, filling: LiveServer) -> Iterator[str]:
    if request.param == "verifier":
        yield filling.url
    else:
        with drafting(filling.url) as url:
            yield url


def _asked(url: str, **given: Any) -> httpx.Response:
    body = {"max_tokens": 20, "seed": 5} | given
    return httpx.post(f"{url}/v1/completions", json=body, trust_env=False, timeout=60)


def test_a_gap_is_filled_by_the_text_behind_its_prompt(url: str) -> None:
    ids = [BEGIN, PREFIX, *BEFORE.encode(), SUFFIX, *BEHIND.encode(), MIDDLE]
    reply, expected = _asked(url, prompt=BEFORE, suffix=BEHIND).json(), _asked(url, prompt=ids).json()
    assert reply["choices"] == expected["choices"] and reply["usage"]["prompt_tokens"] == len(ids)
    plain = _asked(url, prompt=BEFORE).json()["choices"]
    assert plain != expected["choices"]
    for nothing in ("", None):
        assert _asked(url, prompt=BEFORE, suffix=nothing).json()["choices"] == plain
    several = _asked(url, prompt=[BEFORE, ""], suffix=BEHIND, echo=True).json()["choices"]
    assert several[0]["text"] == BEFORE + reply["choices"][0]["text"] and len(several) == 2
    streamed = _asked(url, prompt=BEFORE, suffix=BEHIND, stream=True).text
    assert streamed.endswith("data: [DONE]\n\n") and '"finish_reason":"length"' in streamed


SPELLED = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{BEHIND}<|fim_middle|>"


@pytest.mark.parametrize("given", [{}, {"parse_special": True}, {"parse_special": None}])
def test_control_tokens_that_a_prompt_spells_out_are_encoded_as_such(url: str, given: dict[str, Any]) -> None:
    """Editors write the whole prompt themselves, as llama-server and vLLM read it."""
    reply, gap = _asked(url, prompt=SPELLED, **given), _asked(url, prompt=BEFORE, suffix=BEHIND)
    assert reply.json()["choices"] == gap.json()["choices"]
    assert reply.json()["usage"] == gap.json()["usage"]
    assert "x-specpair-ignored" not in reply.headers and "x-specpair-ignored" not in gap.headers
    begun = _asked(url, prompt=f"<begin>{SPELLED}", **given)
    assert begun.json()["usage"] == gap.json()["usage"]


def test_the_reply_says_that_control_tokens_were_mere_text(url: str) -> None:
    text = _asked(url, prompt=SPELLED, parse_special=False)
    assert text.json()["usage"]["prompt_tokens"] == 1 + len(SPELLED)
    assert text.headers["x-specpair-ignored"] == "prompt.control_tokens"
    streamed = _asked(url, prompt=[SPELLED], parse_special=False, stream=True)
    assert streamed.headers["x-specpair-ignored"] == "prompt.control_tokens"
    assert "x-specpair-ignored" not in _asked(url, prompt="<|fim|>", parse_special=False).headers
    gap = _asked(url, prompt=BEFORE, suffix="<|fim_suffix|>")
    assert gap.headers["x-specpair-ignored"] == "prompt.control_tokens"


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        ({"prompt": [1, 2], "suffix": "x"}, "invalid_request", "suffix"),
        ({"prompt": "x", "suffix": 1}, "invalid_request", "suffix"),
        ({"prompt": "x", "suffix": "y" * 600}, "context_length_exceeded", "prompt"),
        ({"prompt": "x" * 60_000, "suffix": "y"}, "context_length_exceeded", "prompt"),
    ],
)
def test_what_is_wrong_with_a_gap_is_a_400(url: str, given: Any, code: str, param: str) -> None:
    reply = _asked(url, **given)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, code, param)
