"""TranslatingDrafter: the draft model reads the exact text in its own tokens and drafts in the target's."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llama_cpp.model import read_gguf_vocabulary
from backends.scripted import BEGIN, END, ByteVocabulary, Script, ScriptedBackend
from drafter_client.errors import StrategyRefused
from models import DEFAULT_TARGET
from specpair.drafters.byte_pairs import BytePairs
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.translation import TranslatingDrafter
from specpair.engines.vocabulary import Kind
from specpair.speculation.sampling.sampling import Sampling
from tests.end_to_end.prompts import PROMPTS

TARGET, _ = read_gguf_vocabulary(DEFAULT_TARGET)


def test_translation_refuses_drawn_drafts() -> None:
    with pytest.raises(StrategyRefused, match="probabilistic needs the distribution over the target's tokens"):
        TranslatingDrafter(ScriptedBackend(), TARGET, Sampling(), draws=True)


class Parrot(ScriptedBackend):
    """A byte model that continues any prefix of `says` with the next byte of `says`."""

    def __init__(self, says: bytes) -> None:
        super().__init__(Script(), slots=1)
        self.says = says

    def logits_after(self, tokens: Sequence[int]):  # type: ignore[no-untyped-def]
        logits = np.zeros(self.vocabulary.size, np.float32)
        held = bytes(token for token in tokens if token < 256)
        next_id = self.says[len(held)] if self.says.startswith(held) and len(held) < len(self.says) else END
        logits[next_id] = 50.0
        return logits

    @property
    def read(self) -> bytes:
        """The text in its slot."""
        return bytes(token for token in self.held[0] if token < 256)


def drafts(drafter: TranslatingDrafter, text: list[int], count: int) -> list[int]:
    """The draft behind `text`, token by token as the controller expands it."""
    tail: list[int] = []
    for _ in range(count):
        tail.append(drafter.expand(text, [tail], False).proposals[0].token)
    return tail


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_draft_is_in_the_target_s_tokens(temperature: float) -> None:
    whole = "def main(argv=None):\n    return [str(each) for each in argv]\n# naïve 日本 done and over\n"
    ids = TARGET.encode(whole)
    drafter = TranslatingDrafter(Parrot(whole.encode()), TARGET, Sampling(seed=3, temperature=temperature))
    assert drafts(drafter, ids[:4], len(ids) - 6) == ids[4:-2]


def test_text_may_differ_from_the_draft() -> None:
    says = "one two three four five six seven eight nine ten"
    ids = TARGET.encode(says)
    model = Parrot(says.encode())
    drafter = TranslatingDrafter(model, TARGET, Sampling())
    ahead = drafts(drafter, ids[:3], 4)
    assert ahead == ids[3:7]
    passes = model.passes
    assert drafts(drafter, ids[:6], 1) == ids[6:7]
    assert model.passes == passes, "accepted draft tokens are not drafted again"
    other = [*ids[:6], *TARGET.encode(" and", add_begin=False)]
    assert drafter.expand(other, [[]], False).proposals[0].confidence == 0.0, "the model would end the text there"
    assert model.read.startswith(TARGET.decode(other))


def test_model_without_begin_token_waits_for_a_whole_character() -> None:
    class Beginless(ByteVocabulary):
        """A vocabulary without a begin token."""

        def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
            return super().encode(text, add_begin=False, parse_control=parse_control)

    model = Parrot("日本 it is".encode())
    model.vocabulary = Beginless()
    drafter = TranslatingDrafter(model, ByteVocabulary(), Sampling())
    char = [*"日".encode()]
    for text in ([BEGIN], [BEGIN, *char[:1]], [BEGIN, *char[:2]]):
        expansion = drafter.expand(text, [[]], False)
        assert (expansion.proposals[0].confidence, expansion.read) == (0.0, 1)
    assert model.passes == 0
    assert drafts(drafter, [BEGIN, *char], 6) == [*"本 it".encode()]
    drafter = TranslatingDrafter(model, ByteVocabulary(), Sampling())
    assert drafter.expand([BEGIN], [char], False).proposals[0].token == "本".encode()[0], "a tail is read, too"


@given(
    st.lists(
        st.sampled_from(["x", " foo", "é", "日本", "🙂", "\n\n", "    ", "12345", "<end>"]), min_size=1, max_size=12
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(0, 3),
)
def test_model_reads_the_exact_text_wherever_it_is_cut(words: list[str], cuts: list[int], depth: int) -> None:
    text = "".join(words)
    ids = [
        token for byte in text.encode() for token in (2 + byte,)
    ]  # ids of single bytes, so that characters are split
    pieces = [b"<b>", b"<e>", *(bytes([byte]) for byte in range(256)), b" foo", b"45"]
    target = ByteVocabulary()
    target.pieces, target.kinds = pieces, [Kind.CONTROL] * 2 + [Kind.ORDINARY] * 258
    target.begin, target.ends = 0, frozenset({1})
    model = ScriptedBackend(Script(seed=2), slots=1)
    drafter = TranslatingDrafter(model, target, Sampling(seed=1, temperature=0.5))
    at = 0
    for cut in [*cuts, len(ids)]:
        at = min(at + cut, len(ids))
        drafts(drafter, [0, *ids[:at]], depth + 1)
        data = text.encode()[:at]
        whole = data.decode(errors="ignore").encode()
        assert bytes(token for token in model.held[0] if token < 256).startswith(whole)


def test_equal_vocabularies_give_the_predictions_of_the_model_itself() -> None:
    """Noise included."""
    sampling = Sampling(seed=5, temperature=0.9)
    same = ScriptedBackend(Script(seed=4, support=128), slots=1)
    prompt = [BEGIN, *b"so it goes"]
    plain = ModelDrafter(ScriptedBackend(Script(seed=4, support=128), slots=1), sampling)
    drafter = TranslatingDrafter(same, ByteVocabulary(), sampling)
    for length in range(3, len(prompt)):
        ours = drafter.expand(prompt[:length], [[]], False).proposals[0]
        theirs = plain.expand(prompt[:length], [[]], False).proposals[0]
        assert ours.token == theirs.token and ours.confidence == pytest.approx(theirs.confidence)


BYTES = {byte: bytes([byte]) for byte in range(256)}
WORDS = BytePairs(BYTES | dict(enumerate([b"ab", b"abc", b"bc", b" a", b" ab", b"12", b"123", b"  ", b"", b"ab"], 300)))


@given(st.text())
def test_encoding_keeps_all_bytes(text: str) -> None:
    ids = WORDS.encode(text)
    assert "".join(WORDS.split(text)) == text
    pieces = BYTES | dict(enumerate([b"ab", b"abc", b"bc", b" a", b" ab", b"12", b"123", b"  "], 300))
    assert b"".join(pieces[token] for token in ids) == text.encode(errors="replace")


def test_lowest_id_is_merged_first_and_wins_among_equals() -> None:
    assert WORDS.encode("abc") == [301]
    assert WORDS.encode("abcc") == [301, 99], "ab is merged before bc, and then with the c"
    assert WORDS.encode("zbcab") == [122, 302, 300]


def test_default_pair_is_encoded_as_by_its_tokenizer() -> None:
    vocabulary, _ = read_gguf_vocabulary(DEFAULT_TARGET)
    ordinary = {at: piece for at, piece in enumerate(vocabulary.pieces) if vocabulary.kinds[at] == Kind.ORDINARY}
    pairs = BytePairs(ordinary)
    same = sum(pairs.encode(text) == vocabulary.encode(text, add_begin=False) for text in PROMPTS)
    assert same >= len(PROMPTS) - 1
