"""A `Core` in this process: the scripted model, and the rules by which vLLM's plug-ins run steps."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.scripted import ScriptedBackend
from specpair.speculation.acceptance.judge import judge
from specpair.speculation.draft import chain
from specpair.speculation.sampling.distribution import TokenLogprobs, token_logprobs
from verifier_server.engine.external_cores.core import CoreLost, CoreOutput, CoreRequest, CoreStep, CoreUnreachable
from verifier_server.sessions import Session


@dataclass
class Text:
    session: Session
    tokens: list[int]
    wanted: CoreRequest
    new: bool = True


@dataclass
class ScriptedCore:
    """Runs a step when `outputs` is called. While `gate` is closed, none."""

    backend: ScriptedBackend
    most: int = 8  # draft tokens in a step
    texts: dict[str, Text] = field(default_factory=dict)
    steps: int = 0
    judged: int = 0
    begun: int = 0
    updates: int = 0
    salts: list[str] = field(default_factory=list)
    lost: bool = False
    away: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self.changed, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def begin(self, name: str, session: Session, salt: str, wanted: CoreRequest) -> None:
        self.texts[name] = Text(session, list(session.tokens), wanted)
        self.begun += 1
        self.salts.append(salt)
        self.changed.set()

    async def update(self, name: str, wanted: CoreRequest) -> None:
        self.updates += 1
        if name in self.texts:
            self.texts[name].wanted = wanted
            self.changed.set()

    async def forget(self, names: Sequence[str]) -> None:
        for name in names:
            self.texts.pop(name, None)

    async def outputs(self) -> list[CoreOutput]:
        await self.gate.wait()
        if self.away:
            self.away = False
            return []
        while not (ready := [name for name, text in self.texts.items() if self._runs(text)]):
            await self.changed.wait()
            self.changed.clear()
            self._check()
            await self.gate.wait()
        self._check()
        self.steps += 1
        await asyncio.sleep(0)
        return [self._step(name, len(ready)) for name in ready if name in self.texts]

    async def close(self) -> None:
        self.closed = True

    def die(self) -> None:
        """Be lost. Called in the loop."""
        self.lost = True
        self.changed.set()

    def leave(self) -> None:
        """Be away until the gate is opened. Called in the loop."""
        self.gate.clear()
        self.away = True
        self.changed.set()

    def _check(self) -> None:
        if self.lost:
            raise CoreLost("the core has ended: restart it")
        if self.away:
            self.texts.clear()
            raise CoreUnreachable("the core is away")

    def _runs(self, text: Text) -> bool:
        return text.new or text.wanted.wants_step(text.tokens, len(text.tokens))

    def _step(self, name: str, texts: int) -> CoreOutput:
        text, total = self.texts[name], len(self.texts[name].tokens)
        draft = [] if text.new else text.wanted.tail(text.tokens, total)[: self.most]
        rows = [self.backend.logits_after([*text.tokens, *draft[:at]]) for at in range(len(draft) + 1)]
        rulings = judge(chain(draft), rows, text.session.rule, total, self.backend.vocabulary.ends)
        tokens = [each.token for each in rulings][: text.session.limit - total]
        text.tokens += tokens
        self.judged += len(draft)
        cached, text.new = 0 if text.new else None, False
        ended = len(text.tokens) >= text.session.limit or tokens[-1] in self.backend.vocabulary.ends
        if ended:
            del self.texts[name]
        step, most = CoreStep(draft, 1 + len(draft), 0.001, texts, 0), text.session.spec.logprobs
        told: list[TokenLogprobs | None] | None = (
            None
            if most is None
            else [token_logprobs(row, token, most) for row, token in zip(rows, tokens, strict=False)]
        )
        return CoreOutput(name, tokens, step, cached, ended, told)
