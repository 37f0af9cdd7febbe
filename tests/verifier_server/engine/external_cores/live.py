"""Verifiers over a core: one in this process, by which the rules are defined, and SGLang's stand-in."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from specpair.engines.load_options import LoadOptions
from specpair.speculation.acceptance.strategies import Strategy
from tests.stand_ins.sglang import SglangStandIn
from tests.verifier_server.conftest import SCRIPT, LiveServer
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.external_cores.scripted_core import ScriptedCore
from tests.verifier_server.support import PROMPT_IDS
from verifier_server.engine.external_cores.core import LoopThread
from verifier_server.engine.external_cores.core_engine import CoreEngine
from verifier_server.engine.interface import EngineInfo, LoadedEngine, Serving
from verifier_server.engine.sglang import core as sglang_core
from verifier_server.engine.sglang import load as sglang_load
from verifier_server.engine.vllm import load as vllm_load
from verifier_server.settings import Settings

TEXT = plain(Script(seed=2), PROMPT_IDS, 200)
START = len(PROMPT_IDS)


class Watched(Protocol):
    """What tests see and do of a core."""

    @property
    def passes(self) -> int:
        """Passes since the verifier is ready."""

    @property
    def judged(self) -> int:
        """Draft tokens that they judged."""

    @property
    def salts(self) -> set[str]: ...

    def is_idle(self) -> bool:
        """Whether no text is decoded."""

    def leave(self) -> None:
        """Do not answer any more, until `come_back`."""

    def come_back(self) -> None: ...


class Live(LiveServer):
    """A verifier over a core."""

    core: Watched
    draws: bool  # whether the engine serves other temperatures than 0

    def verify(self, text: list[int], draft: list[int], **fields: Any) -> Any:
        """Send a draft behind `text`, and append what is committed."""
        reply = self.post("/verify", {"position": START + len(text), "draft_tokens": draft, **fields})
        text += reply["tokens"]
        return reply


class InProcess:
    """A `ScriptedCore`, in its loop."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.backend = ScriptedBackend(SCRIPT, context_length=512)

        async def make() -> ScriptedCore:
            return ScriptedCore(self.backend)

        self.core = self.loop.result(make())

    def do(self, call: Callable[[], object]) -> None:
        async def run() -> None:
            call()

        self.loop.result(run())

    @property
    def passes(self) -> int:
        return self.core.steps

    @property
    def judged(self) -> int:
        return self.core.judged

    @property
    def salts(self) -> set[str]:
        return set(self.core.salts)

    def is_idle(self) -> bool:
        return not any(text.wanted.free for text in list(self.core.texts.values()))

    def leave(self) -> None:
        self.do(self.core.leave)

    def come_back(self) -> None:
        self.do(self.core.gate.set)

    def load(self, options: LoadOptions, settings: Settings, progress: object) -> LoadedEngine:
        info = EngineInfo(
            "vllm", "scripted", self.backend.vocabulary, 4, 512, 8, 0, 0, None,
            strategies=tuple(each for each in Strategy if not each.draws),
            lacks=vllm_load.LACKS,
        )  # fmt: skip

        def serve(serving: Serving) -> CoreEngine:
            engine = CoreEngine(self.core, self.loop, serving, [0.001], max_queue=settings.max_queue)
            engine.start()
            return engine

        return LoadedEngine(info, {}, None, [0.001, 0.001], serve, lambda: self.loop.result(self.core.close()))


class AsServer(SglangStandIn):
    """SGLang's stand-in as a `Watched`."""

    def is_idle(self) -> bool:
        return not self.running

    def leave(self) -> None:
        self.kill()

    def come_back(self) -> None:
        self.restart()


@contextmanager
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    watched = InProcess()
    monkeypatch.setattr(vllm_load, "load", watched.load)
    live = Live(Settings(backend="vllm"), None)
    live.core, live.draws = watched, True
    live.wait_until_ready()
    yield live
    live.close()
    assert watched.core.closed


def prepare(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make `folder` that of the stand-in's model, and waits short."""
    (folder / "config.json").write_text(json.dumps({"model_type": "scripted", "vocab_size": 258}))
    monkeypatch.setattr(sglang_load, "read_vocabulary", lambda _folder, size: ByteVocabulary(size))
    monkeypatch.setattr(sglang_load, "WAIT", 0.01)
    monkeypatch.setattr(sglang_core, "CHECKED_EVERY", 0.05)
    monkeypatch.setattr(sglang_core, "AWAY_EVERY", 0.01)


@contextmanager
def over_sglang(
    monkeypatch: pytest.MonkeyPatch, folder: Path, server: AsServer | None = None, **given: Any
) -> Iterator[Live]:
    """`folder`: an empty one. `given`: settings."""
    server = server or AsServer(ScriptedBackend(SCRIPT, context_length=512))
    prepare(monkeypatch, folder)
    given = {"model": folder, "max_drafts": 8, "context": 512, **given}
    live = Live(Settings(backend="sglang", sglang_url=server.url, **given), None)
    try:
        live.core, live.draws = server, False
        live.wait_until_ready()
        server.forget()
        yield live
    finally:
        server.gate.set()
        live.close()
        server.kill()
