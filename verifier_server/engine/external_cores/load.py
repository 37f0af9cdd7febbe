"""Loads an engine over a core: checks that drafts do not change texts, and times steps."""

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.errors import ModelLoadError
from specpair.engines.model_files import read_chat_templates
from specpair.engines.probe_texts import timing_ids
from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.external_cores.core import Core, CoreOutput, CoreRequest, LoopThread
from verifier_server.engine.external_cores.core_engine import CoreEngine
from verifier_server.engine.interface import EngineInfo, LoadedEngine, Serving
from verifier_server.engine.pass_time import interpolate
from verifier_server.sessions import Session

_TEXT = 12  # tokens of the text that is tried
_WIDTHS = (1, 2, 5, 9, 17)  # of the steps that are timed
_ROUNDS, _MOST_ROUNDS = 3, 12  # how many times each is timed at least, and at most
_TIME_LIMIT = 4.0  # seconds of steps after which no further round is timed


def refuse_scheduling(settings: Any, called: str) -> None:
    """Raise ModelLoadError for settings of our scheduler, which the core named `called` replaces."""
    for name in ("prefill_chunk", "keep_tokens"):
        if getattr(settings, name) != type(settings).model_fields[name].default:
            raise ModelLoadError(f"{name}: {called} has its own scheduler: leave it out", name)


def loaded_engine(
    core: Core, loop: LoopThread, info: EngineInfo, pass_times: Sequence[float], folder: Path, settings: Any
) -> LoadedEngine:
    """The engine over a core that runs in `loop`. `folder`: of the model, whose chat templates it has."""

    def serve(serving: Serving) -> CoreEngine:
        engine = CoreEngine(
            core, loop, serving, pass_times, max_queue=settings.max_queue, one_scope=settings.share_prefixes
        )
        engine.start()
        return engine

    def close() -> None:
        loop.result(core.close())
        loop.stop()

    templates = read_chat_templates(folder)
    return LoadedEngine(info, templates, templates.get(DEFAULT_TEMPLATE), pass_times, serve, close)


class CoreProbe:
    """Runs texts on a core, one at a time, to check and time it."""

    def __init__(self, core: Core, info: EngineInfo, called: str) -> None:
        """`called`: the core's name in errors."""
        self._core, self._info, self._called, self._texts = core, info, called, 0

    async def check(self, *, drafts: bool = False) -> None:
        """Decode a text without drafts, with the right drafts and with wrong ones. Raises ModelLoadError if the texts
        differ, or if the core did not judge the drafts as it was asked to.

        `drafts`: whether the core also drafts by itself. Then it also decodes the text so.
        """
        plain, steps = await self._text(lambda _known: [])
        width = min(4, self._info.max_drafts)
        right, fewer = await self._text(lambda known: plain[known : known + width])
        wrong, as_many = await self._text(lambda known: [(plain[known] + 1) % self._info.vocabulary.size])
        if drafts and (own := (await self._text(None))[0]) != plain:
            raise ModelLoadError(
                f"{self._called}'s text depends on its own drafts: {plain}, {own}: leave its own speculation out"
            )
        if not plain == right == wrong:
            raise ModelLoadError(
                f"{self._called}'s text depends on the drafts: {plain}, {right}, {wrong}: it must not be served"
            )
        expected = 1 + -(-(len(plain) - 1) // (width + 1))
        if (steps, fewer, as_many) != (len(plain), expected, len(plain)):
            raise ModelLoadError(
                f"{self._called} took {steps}, {fewer} and {as_many} steps for {len(plain)} tokens without drafts, "
                f"with right and with wrong ones, expected {len(plain)}, {expected} and {len(plain)}: it does not "
                "judge drafts as it was asked to"
            )

    async def pass_times(self) -> CostByWidth:
        """Minimum seconds of steps over 1, 2, … tokens of a text."""
        widths = [width for width in _WIDTHS if width <= self._info.max_drafts + 1]
        ids = timing_ids(self._info.vocabulary.size, max(widths))
        session = self._session(_MOST_ROUNDS * len(widths) * (max(widths) + 1))
        await self._begin(session)
        session.tokens += (await self._output()).tokens
        # Up and down, so that what a core does every few steps does not always meet the same width.
        rounds = [widths[::-1] if number % 2 else widths for number in range(_MOST_ROUNDS)]
        least, spent = dict[int, float](), 0.0
        for number, width in enumerate(chain(*rounds)):
            if number >= _ROUNDS * len(widths) and spent > _TIME_LIMIT:
                break
            if session.limit - len(session.tokens) <= width:
                break
            await self._core.update(self._name, CoreRequest(len(session.tokens), ids[: width - 1], 0))
            output = await self._output()
            session.tokens += output.tokens
            if output.ended:
                break
            spent += output.step.seconds
            least[width] = min(output.step.seconds, least.get(width, float("inf")))
        await self._core.forget([self._name])  # nothing happens where it has ended
        return interpolate(sorted(least.items()))

    async def _text(self, draft: Callable[[int], list[int]] | None) -> tuple[list[int], int]:
        """The tokens of a text, and how many steps they took.

        `draft`: of the number of tokens so far; None: the core decodes the text by itself.
        """
        session, tokens, steps = self._session(_TEXT), list[int](), 0
        await self._begin(session, free=session.limit if draft is None else 0)
        while True:
            output = await self._output()
            tokens, steps = tokens + output.tokens, steps + 1
            if output.ended:
                return tokens, steps
            if draft is None:
                continue
            await self._core.update(self._name, CoreRequest(session.prompt_len + len(tokens), draft(len(tokens)), 0))

    @property
    def _name(self) -> str:
        return f"probe:{self._texts}"

    def _session(self, tokens: int) -> Session:
        vocabulary = self._info.vocabulary
        prompt = [vocabulary.begin or 0, *timing_ids(vocabulary.size, 3)]
        limit = min(len(prompt) + tokens, self._info.context_length)
        return Session("probe", prompt, len(prompt), TextSpec(seed=0), limit, vocabulary.ends)

    async def _begin(self, session: Session, free: int = 0) -> None:
        self._texts += 1
        wanted = CoreRequest(session.prompt_len, None if free else [], free)
        await self._core.begin(self._name, session, self._name, wanted)

    async def _output(self) -> CoreOutput:
        while True:
            for output in await self._core.outputs():
                if output.name == self._name:
                    if output.error is not None:
                        raise ModelLoadError(f"{self._called} does not judge a text: {output.error}")
                    return output
