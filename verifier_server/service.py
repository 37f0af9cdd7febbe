"""The verifier without HTTP: prompts to sessions, guesses to answers."""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from typing import Any

from backends.contract import Backend, BackendError
from backends.registry import load
from speculation import noise, wire
from speculation.acceptance import Strategy
from speculation.errors import (
    EmptyPrompt,
    InvalidRequest,
    ModelFailed,
    ModelLoading,
    PromptTooLong,
    SpecPairError,
    TokenOutOfRange,
)
from verifier_server.engine import Answer, Engine, Job
from verifier_server.pass_cost import pass_cost
from verifier_server.sessions import Session, SessionTable
from verifier_server.settings import Settings

_log = logging.getLogger("specpair.verifier")


class Service:
    """One model and its sessions. Everything but `_load` runs in the event loop's thread."""

    def __init__(self, settings: Settings, backend: Backend | None = None) -> None:
        self.settings = settings
        self.sessions = SessionTable(time.monotonic, settings.session_ttl, settings.max_sessions, self._removed)
        self.progress = 0.0
        self.failure: str | None = None
        self._backend = backend
        self._engine: Engine | None = None
        self._pass_ms: list[float] = []
        self._decoding = 0  # texts that `/generate` is at
        self._loader = threading.Thread(target=self._load, name="loader", daemon=True)
        self._on_failure: Callable[[], None] | None = None

    def start(self, on_failure: Callable[[], None] | None = None) -> None:
        """Begin to load the model; `on_failure` is called from the loader's thread when that fails."""
        self._on_failure = on_failure
        self._loader.start()

    def stop(self) -> None:
        """Wait for a load under way, end the engine, free the model."""
        self._loader.join()
        if self._engine is not None:
            self._engine.stop()
            self._engine = None

    @property
    def engine(self) -> Engine:
        """Raises ModelLoading or ModelFailed until the model is there."""
        if self.failure is not None:
            raise ModelFailed(f"the model could not be loaded: {self.failure}")
        if self._engine is None:
            raise ModelLoading(
                f"the model is loading ({self.progress:.0%}): wait and ask again", progress=self.progress
            )
        return self._engine

    def health(self) -> dict[str, Any]:
        """Body of `/health`."""
        if self.failure is not None:
            return {"status": "failed", "reason": self.failure}
        if self._engine is None:
            return {"status": "loading", "progress": round(self.progress, 3)}
        if self._engine.failure is not None:
            return {"status": "failed", "reason": self._engine.failure}
        return {"status": "ready", "model": self._engine.backend.model_name, "sessions": len(self.sessions)}

    def model(self, below: int | None = None) -> dict[str, Any]:
        """Body of `/model`; with `below`, fingerprints of the first so many ids."""
        backend = self.engine.backend
        return {
            "model": backend.model_name,
            "backend": backend.name,
            "context_length": backend.context_length,
            "rows": backend.rows,
            "kv_bytes": backend.kv_bytes,
            "max_draft_tokens": self.engine.max_drafts,
            "pass_ms": [round(ms, 3) for ms in self._pass_ms],
            "strategies": [str(strategy) for strategy in Strategy],
            "noise": noise.NAME,
            "vocabulary": self.vocabulary(below),
            "chat_template": backend.chat_template,
        }

    def vocabulary(self, below: int | None = None) -> dict[str, Any]:
        """Fingerprints, of the first `below` ids or of all."""
        vocabulary = self.engine.backend.vocabulary
        return asdict(vocabulary.fingerprint_below(vocabulary.size if below is None else below))

    async def prefill(
        self, request: wire.PrefillRequest, session_id: str | None, caller: str
    ) -> tuple[Session, Answer]:
        """Open a session (or find the one this very request opened) and generate its first token."""
        engine = self.engine
        request = request.model_copy(update={"session_id": None})
        session = self.sessions.open(session_id, caller, request, lambda new_id: self._session(new_id, request))
        return session, await self._ask(engine, session, session.prompt_len, [])

    def session(self, session_id: str | None, caller: str) -> Session:
        """The session meant by a request: by its id, or the caller's latest. Raises UnknownSession."""
        _ = self.engine  # while the model loads there are no sessions yet, and that is the better answer
        return self.sessions.latest(caller) if session_id is None else self.sessions.get(session_id)

    async def verify(self, request: wire.VerifyRequest, session: Session) -> Answer:
        """Judge a guess. Without a position, the session's cursor stands in and moves on."""
        engine = self.engine
        self._check_ids("draft_tokens", request.draft_tokens)
        implicit = request.position is None
        position = session.cursor if request.position is None else request.position
        answer = await self._ask(engine, session, position, request.draft_tokens)
        if implicit:
            session.cursor = min(position + max(answer.accepted, 1), answer.total_tokens)
        return answer

    async def generate(self, request: wire.GenerateRequest) -> tuple[Session, AsyncGenerator[Answer]]:
        """Plain decoding on the server: the session and its answers as passes end. Closing the iterator stops it."""
        engine = self.engine
        self.sessions.check_room(self._decoding)
        session = self._session(secrets.token_hex(16), request)
        return session, self._decode(engine, session)

    async def _decode(self, engine: Engine, session: Session) -> AsyncGenerator[Answer]:
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[Answer | SpecPairError] = asyncio.Queue()

        def done(answer: Answer | SpecPairError) -> None:
            loop.call_soon_threadsafe(answers.put_nowait, answer)

        job = Job(session, session.prompt_len, [], done, until_end=True)
        engine.submit(job)
        self._decoding += 1
        try:
            finished = False
            while not finished:
                answer = await answers.get()
                if isinstance(answer, SpecPairError):
                    raise answer
                finished = answer.finish_reason is not None
                yield answer
        finally:
            self._decoding -= 1
            job.cancelled = True
            engine.forget(session)

    async def _ask(self, engine: Engine, session: Session, position: int, drafts: list[int]) -> Answer:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer | SpecPairError] = loop.create_future()

        def settle(answer: Answer | SpecPairError) -> None:
            if not future.done():  # the client may be gone
                future.set_result(answer)

        def done(answer: Answer | SpecPairError) -> None:
            loop.call_soon_threadsafe(settle, answer)

        with self.sessions.in_use(session):
            engine.submit(Job(session, position, drafts, done))
            answer = await future
        if isinstance(answer, SpecPairError):
            raise answer
        return answer

    def _session(self, session_id: str, request: wire.PrefillRequest | wire.GenerateRequest) -> Session:
        backend = self.engine.backend
        if request.prompt_ids is not None:
            ids = request.prompt_ids
            self._check_ids("prompt_ids", ids)
        else:
            try:
                ids = backend.vocabulary.encode(request.prompt or "")
            except UnicodeEncodeError as error:
                raise InvalidRequest(f"prompt: not valid Unicode text: {error.reason}", param="prompt") from None
        if not ids or request.prompt == "":
            raise EmptyPrompt("the prompt is empty: give at least one token to continue")
        if len(ids) >= backend.context_length:
            raise PromptTooLong(
                f"the prompt has {len(ids)} tokens, the context holds {backend.context_length} with the answer: "
                "shorten the prompt, or start the verifier with a larger context",
                prompt_len=len(ids),
                context_length=backend.context_length,
            )
        sampling = request.sampling(secrets.randbelow(noise.SEED_LIMIT) if request.seed is None else request.seed)
        limit = backend.context_length
        if request.max_tokens is not None:
            limit = min(limit, len(ids) + request.max_tokens)
        return Session(session_id, list(ids), len(ids), sampling, request.strategy, limit)

    def _check_ids(self, field: str, ids: list[int]) -> None:
        size = self.engine.backend.vocabulary.size
        if ids and not (0 <= min(ids) and max(ids) < size):
            at = next(at for at, token in enumerate(ids) if not 0 <= token < size)
            raise TokenOutOfRange(
                f"{field}.{at}: token id {ids[at]} is outside of the vocabulary of {size} ids", param=f"{field}.{at}"
            )

    def _removed(self, session: Session) -> None:
        if self._engine is not None:
            self._engine.forget(session)

    def _load(self) -> None:
        try:
            backend = self._backend or load(self.settings.backend, self.settings.load_options(), self._report)
            _log.info(
                "%s: %d rows of %d tokens, %.1f MiB of KV cache",
                backend.model_name,
                backend.rows,
                backend.context_length,
                backend.kv_bytes / 2**20,
            )
            try:
                self._pass_ms = pass_cost(backend, time.perf_counter)
            except BaseException:
                backend.close()
                raise
            engine = Engine(backend, self.settings.max_drafts)
            engine.start()
            self._engine = engine
            return
        except BackendError as error:
            self.failure = str(error)
        except Exception as error:  # an engine's own crash must reach the user too
            _log.exception("loading the model failed")
            self.failure = f"{type(error).__name__}: {error}"
        _log.error("the model could not be loaded: %s", self.failure)
        if self._on_failure is not None:
            self._on_failure()

    def _report(self, fraction: float) -> None:
        self.progress = fraction
