"""The terms of this project as types, in the order in which a round uses them. Read this module first.

A user asks for a text. `TextSpec` holds its options, among them how its tokens are drawn (`Sampling`) and the
`Strategy` by which draft tokens are accepted. The target, a big model, could write the text alone, in a pass (a run of
the model) for each token. But a pass over a few tokens takes hardly longer than one over a single token. So a small
model drafts the next few tokens, and the target says in one pass which of them it would have written. The result is the
target's text, under every strategy but the one called threshold, which trades exactness for speed.

The text, prompt included, is a list of token ids. It only grows: a committed token never changes. A position says how
many tokens of the text come before a token.

1. Draft. A `Drafter` is given the text and a tail, draft tokens behind it (or several tails, as there may be several
   drafts that the text could take). Its `Expansion` holds a `Proposal` for each: the next token, with the drafter's
   confidence. Step by step this makes a `Draft`, which begins at a position and has a `DraftToken` for each token. A
   `DraftSource` says who proposed it: a model, a lookup in a text, or a grammar that allows no other token.
2. Verify. A `Backend` runs the target. Each of its slots is the KV cache of one text, and holds that text but for the
   last token, which is *pending*: it is known, but was not fed yet. An `Entry` is what a pass does for one slot: it
   feeds the pending token and the draft. For k draft tokens the pass returns k + 1 rows of logits (`Logits`, or the
   greatest of them, `TopLogits`).
3. Judge. Row i follows i draft tokens, and the next one is judged by it. `judge` returns a `Ruling` for each position,
   by a `Rule`: strategy, sampling and threshold. It stops at the first draft token that is rejected, and gives the
   target's own token there: a recovered token. If all are accepted, the last row gives one token more: a bonus token.
   It also stops behind an end token.
4. Commit. The tokens of the rulings are appended to the text: at least one in every round. A `TokenSource` says where
   each came from; two more sources are tokens that the target decodes while no draft comes (target-decoded), and those
   that a grammar forces. `TokenDetails` holds that as a `TokenMark`, with how many draft tokens were judged in vain,
   and what else is told of committed tokens on request. What was rejected need not be
   undone: what the slot held from the next entry's start on is overwritten.

`one_round` below does these four steps on one machine. The two ends of a pair share them: the drafter sends the draft,
the verifier answers with the committed tokens, and the drafter drafts on meanwhile.
docs/architecture.md follows a draft token through both, and docs/glossary.md has the other words.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from specpair.drafters.base import Drafter, Expansion
from specpair.engines.backend import Backend, Entry, Rows
from specpair.speculation.acceptance.judge import Rule, Ruling, judge
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import TokenDetails, TokenMark, TokenSource, marks_of
from specpair.speculation.draft import Draft, DraftSource, DraftToken
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.sampling.top_logits import Logits, TopLogits
from specpair.speculation.text_options import TextSpec

__all__ = [  # noqa: RUF022 in the order of the story
    "TextSpec",
    "Sampling",
    "Strategy",
    "Drafter",
    "Expansion",
    "Proposal",
    "Draft",
    "DraftToken",
    "DraftSource",
    "Backend",
    "Entry",
    "Logits",
    "TopLogits",
    "judge",
    "Ruling",
    "Rule",
    "TokenSource",
    "TokenDetails",
    "TokenMark",
    "one_round",
]


def one_round(
    text: list[int],
    spec: TextSpec,
    drafter: Drafter,
    extend: Callable[[Sequence[Entry]], Sequence[Rows]],
    length: int,
    ends: AbstractSet[int] = frozenset(),
) -> TokenDetails:
    """Draft `length` tokens behind `text`, judge them in one pass, and append the committed tokens to `text`.

    `spec`: by its seed, filters, strategy and threshold; logit processors are left out here.
    `extend`: `Backend.extend` of the target, whose slot 0 holds the text but for the pending token.
    `ends`: ids of the end tokens.

    Returns where each committed token came from.

    Two models that count. The target goes back to 0 after 9, the drafter after 5:

    >>> import numpy as np
    >>> def target(batch):  # the logits of each token's successor are the greatest
    ...     return [np.eye(10, dtype=np.float32)[[(token + 1) % 10 for token in entry.tokens]] for entry in batch]
    >>> class CountsToFive:
    ...     width = 1
    ...     def expand(self, text, tails, runners_up):
    ...         return Expansion([Proposal(([*text, *tail][-1] + 1) % 6, 0.9) for tail in tails], read=1)
    >>> text = [1, 2, 3]
    >>> details = one_round(text, TextSpec(), CountsToFive(), target, length=4)  # it drafts 4 5 0 1
    >>> text, [mark.source.value for mark in details.sources]
    ([1, 2, 3, 4, 5, 6], ['accepted', 'accepted', 'recovered'])
    >>> text = [1, 2]
    >>> details = one_round(text, TextSpec(), CountsToFive(), target, length=2)
    >>> text, [mark.source.value for mark in details.sources]
    ([1, 2, 3, 4, 5], ['accepted', 'accepted', 'bonus'])
    """
    draft = Draft(len(text))
    for _ in range(length):
        [proposal] = drafter.expand(text, [draft.ids], False).proposals
        token = DraftToken(proposal.token, proposal.confidence, DraftSource.MODEL, proposal.probs)
        draft = Draft(draft.position, (*draft.tokens, token))

    pending = len(text) - 1
    [rows] = extend([Entry(slot=0, start=pending, tokens=[text[pending], *draft.ids], logits_from=0)])

    rule = Rule(spec.strategy, spec.drawn, spec.threshold or 0.0)
    rulings = judge(draft.tokens, rows, rule, draft.position, ends)

    text += [each.token for each in rulings]
    return TokenDetails(marks_of([each.accepted for each in rulings], judged=len(draft)))
