"""Benches of tests: an engine without a thread, plain decoding, random trees."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.scripted import END, Script, ScriptedBackend
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.draft_probs import Weights
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft, DraftToken
from specpair.speculation.sampling.row_changes import MakeGrammar
from specpair.speculation.sampling.sampling import Sampling, choose_reference
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Scheduler
from verifier_server.sessions import Session

GREEDY = Sampling()


def plain(script: Script, prompt: Sequence[int], count: int, sampling: Sampling = GREEDY) -> list[int]:
    """Up to `count` tokens after `prompt` by plain decoding of the model; fewer if an end token comes."""
    model, tokens = ScriptedBackend(script), list(prompt)
    while len(tokens) < len(prompt) + count and tokens[-1] != END:
        tokens.append(choose_reference(model.logits_after(tokens), sampling, len(tokens)))
    return tokens[len(prompt) :]


@dataclass
class Asked:
    """A submitted request, and its results so far."""

    request: Request
    results: list[Answer | SpecPairError] = field(default_factory=list)

    @property
    def answer(self) -> Answer:
        """The last answer; raises the error if it was one."""
        last = self.results[-1]
        if isinstance(last, SpecPairError):
            raise last
        return last

    @property
    def settled(self) -> bool:
        last = self.results[-1] if self.results else None
        return last is not None and not (
            self.request.until_end and isinstance(last, Answer) and last.finish_reason is None
        )


def session_over(
    backend: ScriptedBackend, number: int, prompt: Sequence[int], spec: TextSpec, max_tokens: int | None, **options: Any
) -> Session:
    """The session of this number, of at most `max_tokens` (None: as many as there is room for). `options`: its own."""
    limit = backend.context_length if max_tokens is None else min(len(prompt) + max_tokens, backend.context_length)
    ends = backend.vocabulary.ends
    return Session(f"session-{number}", list(prompt), len(prompt), spec, limit, ends, **options)


def slot_of(scheduler: Scheduler, session: Session) -> int | None:
    """The number of the slot of `session`; None: it has none."""
    return scheduler.slots[session].number if session in scheduler.slots else None


class Bench:
    """An engine that runs a pass when the test says so."""

    def __init__(
        self,
        script: Script = Script(),
        *,
        slots: int = 2,
        context: int = 256,
        batch: int = 64,
        max_rollback: int | None = None,
        max_drafts: int = 32,
        backend: ScriptedBackend | None = None,
        clock: Callable[[], float] = time.perf_counter,
        **options: Any,
    ) -> None:
        self.backend = backend or ScriptedBackend(
            script, slots=slots, context_length=context, max_batch_tokens=batch, max_rollback=max_rollback
        )
        options = {"batching_window": 0.0, **options}
        self.scheduler = Scheduler(self.backend, max_drafts=max_drafts, **options)
        self.engine = Engine(self.scheduler, clock)
        self._opened = 0

    def open(
        self,
        prompt: str | Sequence[int] = "prompt",
        *,
        max_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        strategy: Strategy = Strategy.COUPLED,
        threshold: float | None = None,
        explain: bool = False,
        logprobs: int | None = None,
        grammars: MakeGrammar | None = None,
    ) -> Session:
        ids = self.backend.vocabulary.encode(prompt) if isinstance(prompt, str) else prompt
        self._opened += 1
        spec = TextSpec.of(sampling, strategy=strategy, threshold=threshold, explain=explain, logprobs=logprobs)
        return session_over(self.backend, self._opened, ids, spec, max_tokens, grammars=grammars)

    def slot(self, session: Session) -> int | None:
        return slot_of(self.scheduler, session)

    def ask(
        self,
        session: Session,
        position: int,
        drafts: Sequence[int] | Draft = (),
        until_end: bool = False,
        admitted: bool = False,
        proposals: Sequence[Weights] = (),
    ) -> Asked:
        """`drafts`: the ids of a chain, or a draft."""
        results: list[Answer | SpecPairError] = []
        draft = drafts if isinstance(drafts, Draft) else Draft.chain(position, drafts, proposals)
        request = Request(session, draft, results.append, until_end, admitted=admitted)
        self.engine.submit(request)
        return Asked(request, results)

    def run(self, *asked: Asked, steps: int = 1000) -> None:
        """Step until all of `asked` are settled; checks the engine's integrity after each step."""
        for _ in range(steps):
            if all(each.settled for each in asked):
                return
            self.engine.step()
            self.engine.check_integrity()
        raise AssertionError(f"not settled after {steps} steps")

    def verify(
        self, session: Session, position: int, drafts: Sequence[int] | Draft = (), proposals: Sequence[Weights] = ()
    ) -> Answer:
        asked = self.ask(session, position, drafts, proposals=proposals)
        self.run(asked)
        return asked.answer

    def prefill(self, session: Session) -> Answer:
        return self.verify(session, session.prompt_len)

    def decode(self, session: Session) -> list[int]:
        """The whole text of a session, by plain decoding through the engine."""
        asked = self.ask(session, session.prompt_len, until_end=True)
        self.run(asked, steps=10_000)
        return session.tokens[session.prompt_len :]


def random_tree(chance: random.Random, position: int, right: Sequence[int], ids: int, wrong: int = 4) -> Draft:
    """A tree of the tokens `right`, which follow one another, and of up to `wrong` others below `ids` anywhere among
    them, in any order in which each token stands behind the one that it follows."""
    followed = [-1]  # for each node, the index of the node that it follows; the first is the text
    tokens = [0]
    for token in right:
        followed.append(len(tokens) - 1)
        tokens.append(token)
    for _ in range(chance.randint(0, wrong)):
        parent = chance.randrange(len(tokens))
        taken = {token for token, each in zip(tokens, followed, strict=True) if each == parent}
        followed.append(parent)
        tokens.append(chance.choice([each for each in range(ids) if each not in taken]))
    placed, made = {0: -1}, list[DraftToken]()
    while len(placed) < len(tokens):
        ready = [at for at, each in enumerate(followed) if at not in placed and each in placed]
        node = chance.choice(ready)
        placed[node] = len(made)
        made.append(DraftToken(tokens[node], parent=len(made) - placed[followed[node]]))
    return Draft(position, tuple(made))
