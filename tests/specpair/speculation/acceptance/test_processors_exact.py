"""Under logit processors, texts are samples of the target's processed distribution, with drafts and without."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.grammar.compiling import Grammars
from specpair.speculation.acceptance.draft_probs import Weights, drawn_from, propose
from specpair.speculation.acceptance.judge import Rule, explain, judge
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.draft import chain
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.grammar import GrammarText
from specpair.speculation.sampling.row_changes import LogitProcessor, ProcessedRows, ProcessorChain
from specpair.speculation.sampling.sampling import Logits, Row, Sampling, choose
from tests.specpair.speculation import chi_square, processed
from tests.specpair.speculation.drafted_decoding import IDS, drafter_row, target_row
from tests.specpair.speculation.processed import text_processors

PROMPT = [0, 4]
COUNT = 3
SEEDS = 600
ENDS = {4}  # the likeliest id behind most others
SETTINGS = pytest.mark.parametrize("sampling", processed.SETTINGS.values(), ids=processed.SETTINGS)


class Letters(Vocabulary):
    """Four letters and an end token."""

    def __init__(self) -> None:
        kinds = [Kind.ORDINARY] * 4 + [Kind.CONTROL]
        super().__init__([b"a", b"b", b"c", b"d", b"<end>"], kinds, None, frozenset(ENDS))

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return ["abcd".index(each) for each in text if each in "abcd"]


GRAMMARS = Grammars(Letters())
CHOICES = ["abc", "abd", "aba", "cab", "cad", "dda", "ddb", "dab", "bca", "bcc"]


def draft(
    processors: ProcessorChain | None, tokens: list[int], count: int, sampling: Sampling, draws: bool
) -> tuple[list[int], list[Weights]]:
    """`count` draft tokens, and if `draws` the distributions they were drawn from. `processors` None: it knows none."""
    drafts: list[int] = []
    proposals: list[Weights] = []
    for _ in range(count):
        row: Row = drafter_row([*tokens, *drafts][-1])
        if processors is not None:
            processors.commit(tokens)
            row = processors.process(row, drafts)
        position = len(tokens) + len(drafts)
        if draws:
            proposals.append(propose(row, sampling))
            drafts.append(drawn_from(proposals[-1], sampling.seed, position))
        else:
            drafts.append(choose(row, sampling, position))
    return drafts, proposals


def text(
    rule: Rule,
    drafts: int,
    *,
    knows: bool = True,
    masks: Callable[[], LogitProcessor] | None = None,
    count: int = COUNT,
) -> tuple[int, ...]:
    """A text decoded in rounds of `drafts` draft tokens. `knows`: whether the drafter has the processors, too."""
    sampling, tokens = rule.sampling, list(PROMPT)
    verifier, drafter = (
        text_processors(sampling, 2, masks=[masks()] if masks else [], ends=ENDS) or ProcessorChain([], 2)
        for _ in range(2)
    )
    while len(tokens) < len(PROMPT) + count:
        tried, proposals = draft(drafter if knows else None, tokens, drafts, sampling, rule.strategy.draws)
        rows = [target_row(each) for each in (tokens[-1], *tried)]
        verifier.commit(tokens)
        tokens += [
            each.token
            for each in judge(chain(tried, proposals), ProcessedRows(verifier, rows, tried), rule, len(tokens), set())
        ]
    return tuple(tokens[len(PROMPT) : len(PROMPT) + count])


def expected(
    sampling: Sampling, forbids: Callable[[tuple[int, ...], int], bool] = lambda *_: False
) -> dict[tuple[int, ...], float]:
    """The probability of each text of `COUNT` tokens, from the definition of the processors.

    `forbids`: whether a mask forbids a token behind others.
    """
    chances = {}
    for tokens in product(range(IDS), repeat=COUNT):
        chance = 1.0
        for at, token in enumerate(tokens):
            row = target_row((*PROMPT, *tokens)[len(PROMPT) + at - 1]).copy()
            row[[forbids(tokens[:at], each) for each in range(IDS)]] = -np.inf
            if np.isinf(row).all():
                chance = 0.0
                break
            changed = processed.process(row, sampling, PROMPT, tokens[:at], ENDS)
            chance *= float(probabilities(changed.astype(np.float32), sampling)[token])
        chances[tokens] = chance
    return chances


def follows(found: Counter[tuple[int, ...]], chances: dict[tuple[int, ...], float]) -> bool:
    return chi_square.fits_pooled([found[each] for each in chances], list(chances.values()))


@SETTINGS
@pytest.mark.parametrize(
    ("strategy", "drafts", "knows"),
    [
        (Strategy.COUPLED, 0, True),  # whose text is the same whatever is drafted, as another test shows
        (Strategy.PROBABILISTIC, 2, True),
        (Strategy.PROBABILISTIC, 3, False),
    ],
)
def test_texts_are_samples_of_the_processed_target(
    sampling: Sampling, strategy: Strategy, drafts: int, knows: bool
) -> None:
    texts = (text(Rule(strategy, replace(sampling, seed=seed)), drafts, knows=knows) for seed in range(SEEDS))
    found = Counter(texts)
    assert follows(found, expected(sampling))


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.PROBABILISTIC])
@pytest.mark.parametrize("sampling", [Sampling(0, 1.0), Sampling(0, 0.7, top_k=3), Sampling(0, 1.5, min_p=0.1)])
def test_a_text_under_a_grammar_is_a_sample_of_the_masked_target(sampling: Sampling, strategy: Strategy) -> None:
    """It is drawn from the softmax over what can still become one of `CHOICES`."""
    asked = GrammarText("choice", json.dumps(CHOICES))
    rules = (Rule(strategy, replace(sampling, seed=seed)) for seed in range(SEEDS))
    texts = (
        text(rule, number % 4, knows=number % 3 > 0, masks=lambda: GRAMMARS(asked)) for number, rule in enumerate(rules)
    )
    found = Counter(texts)
    assert {"".join("abcd"[token] for token in each) for each in found} <= {*CHOICES}
    assert follows(
        found,
        expected(
            sampling,
            lambda before, token: (
                not any(each.startswith("".join("abcd.-"[at] for at in (*before, token))) for each in CHOICES)
            ),
        ),
    )


@SETTINGS
@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY])
def test_the_text_is_the_same_whatever_is_drafted(sampling: Sampling, strategy: Strategy) -> None:
    ends = ENDS if sampling.min_tokens else set()
    for seed in range(20):
        rule = Rule(strategy, effective_sampling(strategy, replace(sampling, seed=seed)))
        texts = {text(rule, drafts, knows=knows, count=12) for drafts in range(5) for knows in (True, False)}
        plain = processed.plain(lambda tokens: target_row(tokens[-1]), PROMPT, 12, rule.sampling, ends)
        assert {each[: len(plain)] for each in texts} == {tuple(plain)}


def test_a_masked_draft_token_is_rejected_by_every_rule() -> None:
    """Even by a threshold of 0, and even if it is the likeliest token of the row."""
    banned = int(target_row(4).argmax())
    sampling = Sampling(1, 1.0, min_p=0.9)
    for strategy in Strategy:
        rule = Rule(strategy, effective_sampling(strategy, sampling), 0.0)
        processors = text_processors(rule.sampling, 2, masks=[Banned(banned)])
        assert processors is not None
        processors.commit(PROMPT)
        rows = ProcessedRows(processors, [target_row(4), target_row(banned)], [banned])
        proposals: list[Weights] = [{banned: 1.0}]
        (ruling,) = rulings = judge(chain([banned], proposals), rows, rule, 2, set())
        assert not ruling.accepted and ruling.token != banned
        (decision,) = explain(rule, rulings, chain([banned], proposals), rows, 2)
        assert decision.draft_p == 0.0 and decision.p > 0.0, "decisions report the processed distribution"


class Banned(LogitProcessor):
    def __init__(self, token: int) -> None:
        self._token = token

    def process(self, row: Logits) -> None:
        row[self._token] = -np.inf
