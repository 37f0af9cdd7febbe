"""The scheduler alone in virtual time: the tests open sessions and submit requests themselves."""

from collections.abc import Callable
from typing import Any

from backends.scripted import Script, ScriptedBackend
from lab.simulator.virtual import world
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import RejectionPolicy
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.engine.bench import session_over, slot_of
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.composer import BatchPlan
from verifier_server.sessions import Session

SCRIPT = Script(seed=3)


def linear(plan: BatchPlan) -> float:
    """Seconds of a pass: 25 ms, and 0.2 ms per token."""
    return 0.025 + 0.0002 * plan.tokens


PASS_TIMES = [0.0252 + 0.0002 * tokens for tokens in range(17)]  # by `linear`, as measured at load


def fed(plan: BatchPlan) -> dict[str, int]:
    """How many tokens a pass feeds for each session, in the order of the pass."""
    return {part.sequence.session.id: len(entry.tokens) for part, entry in zip(plan.parts, plan.batch, strict=True)}


class World(world.World):
    """A scheduler over a scripted model. Its integrity is checked after each event."""

    backend: ScriptedBackend

    def __init__(
        self,
        backend: ScriptedBackend | None = None,
        cost: Callable[[BatchPlan], float] = linear,
        check: bool = True,
        **options: Any,
    ) -> None:
        backend = backend or ScriptedBackend(SCRIPT, slots=8, context_length=4096)
        super().__init__(backend, cost, check=check, **{"pass_times": PASS_TIMES, **options})
        self._opened = 0

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        self.at(self.now + seconds, do)

    def run(self, until: float = float("inf"), done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass up to `until`."""
        self.look()
        super().run(until, done)
        self.now = until

    def open(
        self,
        prompt: list[int],
        *,
        max_tokens: int = 10_000,
        sampling: Sampling = Sampling(),
        strategy: Strategy = Strategy.COUPLED,
        self_continue: bool = False,
        client: str | None = None,
    ) -> Session:
        self._opened += 1
        spec = TextSpec.of(sampling, strategy=strategy)
        options = {"self_continue": self_continue, "client": client}
        session = session_over(self.backend, self._opened, prompt, spec, max_tokens, **options)
        del session.lease  # the engine does not look at it
        return session

    def slot(self, session: Session) -> int | None:
        return slot_of(self.scheduler, session)

    def ask(
        self,
        session: Session,
        position: int | None = None,
        drafts: tuple[int, ...] | list[int] = (),
        then: Callable[[Answer], None] | None = None,
        **options: Any,
    ) -> Request:
        """Submit a request now; `then` gets its answer, `failed` its error. Without `failed` the error is raised."""
        failed: Callable[[SpecPairError], None] | None = options.pop("failed", None)

        def done(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError):
                if failed is None:
                    raise result
                failed(result)
            elif then is not None:
                then(result)

        draft = Draft.chain(len(session.tokens) if position is None else position, drafts)
        policy = RejectionPolicy(options.pop("self_continue", None), options.pop("next_in", None))
        request = Request(session, draft, done, policy=policy, **options)
        self.scheduler.submit(request, self.now)
        return request


def make_world(slots: int = 8, batch: int = 512, can_copy: bool = True, **options: Any) -> World:
    """A world over `SCRIPT` with long slots. `options`: the world's."""
    backend = ScriptedBackend(SCRIPT, slots=slots, context_length=4096, max_batch_tokens=batch, can_copy=can_copy)
    return World(backend, **options)


def opened(world: World, prompt: list[int], **options: Any) -> Session:
    """A session that was prefilled and has its first token."""
    session = world.open(prompt, **options)
    world.ask(session)
    while len(session.tokens) == session.prompt_len:
        world.run(world.now + 0.01)
    return session
