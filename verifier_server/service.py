"""The verifier without HTTP: loads the models, holds the sessions, and answers prefills, verifies and texts."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from starlette.types import Receive

from backends.base import Backend, BackendError
from backends.registry import load
from speculation.acceptance.strategies import Strategy
from speculation.errors import ModelFailed, ModelLoading, UnknownSession
from speculation.protocol import messages
from speculation.protocol.fingerprint import Fingerprint
from speculation.protocol.service_responses import HealthResponse, ModelInfo, VocabularyResponse
from speculation.sampling import gumbel
from speculation.terminal_text import one_line, several_lines
from verifier_server.access import ANYONE, Access, Caller
from verifier_server.engine.batching_window import LONGEST
from verifier_server.engine.engine import Engine
from verifier_server.engine.pass_time import pass_cost
from verifier_server.engine.requests import Answer
from verifier_server.generation.draft_model import load_draft_model
from verifier_server.generation.engine_client import EngineClient
from verifier_server.generation.generator import GeneratedText, Generator
from verifier_server.generation.outbox import Outbox
from verifier_server.generation.prompts import encode_text, make_session
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.generation.verify import Verifying, implicit, seconds
from verifier_server.process.model_files import MappedFiles, parts
from verifier_server.sessions import Session, SessionTable
from verifier_server.settings import Settings

_log = logging.getLogger("specpair.verifier")
_LOG_EVERY = 2.0  # seconds between two log lines on the progress of loading
GRACE = 2.0  # seconds that requests have to finish when the process is told to stop
_DRAFT_SHARE = 0.1  # the draft model's fraction of the loading progress; it is a small model


class Service:
    """One target model and its sessions. Everything but `_load` runs in the event loop's thread."""

    def __init__(
        self,
        settings: Settings,
        backend: Backend | None = None,
        clock: Callable[[], float] = time.perf_counter,
        draft: Backend | None = None,
    ) -> None:
        """`clock`: the engine's clock, in seconds. `backend`, `draft`: target and draft model, if loaded already."""
        self.settings = settings
        self.access = Access(settings.api_key, settings.insecure)
        self.outbox = Outbox()
        self._engine_client = EngineClient(self.outbox)
        self.sessions = SessionTable(
            time.monotonic,
            settings.session_ttl,
            settings.max_sessions,
            self._removed,
            self._replaced,
            quota=settings.quota,
        )
        self.progress = 0.0  # of loading, 0 to 1
        self._began = self._logged = time.monotonic()  # when loading began, and when its progress was last logged
        self.failure: str | None = None  # why the model could not be loaded
        self.verifying = Verifying(self._engine_client, self.sessions)
        self.texts = Generator(self.outbox, self.sessions)
        self._backend, self._draft, self._clock = backend, draft, clock
        self._engine: Engine | None = None
        self._server_drafting: ServerDrafting | None = None
        self._pass_ms: list[float] = []  # milliseconds of the target's passes over 1, 2, … tokens
        self._vocabulary_body: bytes | None = None
        self._loader = threading.Thread(target=self._load, name="loader", daemon=True)
        self._on_failure: Callable[[], None] | None = None
        self.stopping = False
        self._files = MappedFiles(())

    def start(self, on_failure: Callable[[], None] | None = None) -> None:
        """Begin to load the model. If that fails, `on_failure` is called from the loader's thread."""
        self._on_failure = on_failure
        mapped = self.settings.mapped_files if self._backend is None else []
        self._files = MappedFiles(part for path in mapped for part in parts(path))
        self._loader.start()

    def begin_stop(self) -> None:
        """Begin to stop: open requests have `GRACE` seconds to finish; then they get an error."""
        if not self.stopping:
            self.stopping = True
            asyncio.get_running_loop().call_later(GRACE, self._shut_down)

    def _shut_down(self) -> None:
        if self._engine is not None:
            self._engine.shut_down()

    def loaded_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for the loader. Returns whether it has finished."""
        self._loader.join(seconds)
        return not self._loader.is_alive()

    def stop(self) -> None:
        """Wait for the loader, stop the engine and free the models."""
        self._loader.join()
        self._files.close()
        if self._engine is not None:
            self._engine.stop()
            self._engine = None
        if self._server_drafting is not None:
            self._server_drafting.stop()
            self._server_drafting = None

    @property
    def engine(self) -> Engine:
        """The running engine. Raises ModelLoading or ModelFailed while there is none."""
        if self.failure is not None:
            raise ModelFailed(f"the model could not be loaded: {self.failure}")
        if self._engine is None:
            raise ModelLoading(
                f"the model is loading ({self.progress:.0%}): wait and ask again",
                progress=self.progress,
                retry_after=loading_wait(time.monotonic() - self._began, self.progress),
            )
        return self._engine

    def health(self) -> HealthResponse:
        """The reply to `GET /health`."""
        if self.failure is not None:
            return HealthResponse(status="failed", reason=self.failure)
        if self._engine is None:
            return HealthResponse(status="loading", progress=round(self.progress, 3))
        if self._engine.failure is not None:
            return HealthResponse(status="failed", reason=self._engine.failure)
        changed = self._files.change()
        if changed is not None and changed.lost:
            return HealthResponse(status="failed", reason=changed.reason)
        return HealthResponse(
            status="ready",
            model=self._engine.backend.model_name,
            sessions=len(self.sessions),
            # Texts of mode fused continue without drafts.
            draft_model_failure=None if self._server_drafting is None else self._server_drafting.draft.failure,
            warning=None if changed is None else changed.reason,
        )

    def model(self, below: int | None = None) -> ModelInfo:
        """The reply to `GET /model`. `below`: as for `vocabulary`."""
        backend, draft = self.engine.backend, None if self._server_drafting is None else self._server_drafting.draft
        return ModelInfo(
            name=backend.model_name,
            engine=backend.name,
            context_length=backend.context_length,
            rows=backend.slots,
            kv_bytes=backend.kv_bytes,
            max_drafts=self.engine.max_drafts,
            pass_ms=[round(ms, 3) for ms in self._pass_ms],
            strategies=[str(strategy) for strategy in Strategy],
            self_continue=True,
            modes=["target"] if draft is None else ["target", "fused"],
            draft_model=None if draft is None else draft.name,
            draft_pass_ms=None if draft is None else round(draft.step_ms, 3),
            noise=gumbel.NAME,
            vocabulary=self.vocabulary(below),
            chat_template=backend.chat_template,
        )

    def vocabulary(self, below: int | None = None) -> Fingerprint:
        """Fingerprints of the vocabulary's first `below` ids; None: of all ids."""
        vocabulary = self.engine.backend.vocabulary
        return vocabulary.fingerprint_below(vocabulary.size if below is None else below)

    def whole_vocabulary(self) -> bytes:
        """The body of the reply to `GET /vocabulary`."""
        vocabulary = self.engine.backend.vocabulary
        if self._vocabulary_body is None:  # costly to build, and asked for by every drafter without a model
            self._vocabulary_body = VocabularyResponse(
                size=vocabulary.size,
                begin=vocabulary.begin,
                ends=sorted(vocabulary.ends),
                kinds="".join(str(int(kind)) for kind in vocabulary.kinds),
                pieces=[piece.decode("latin-1") for piece in vocabulary.pieces],
            ).body()
        return self._vocabulary_body

    def tokenize(self, request: messages.TokenizeRequest) -> list[int]:
        """Token ids of the text in `request`. Raises PromptTooLong and InvalidRequest."""
        return encode_text(
            self.engine.backend,
            "text",
            request.text,
            add_begin=request.add_begin,
            parse_control=request.parse_control,
        )

    async def prefill(
        self, request: messages.PrefillRequest, session_id: str | None, caller: Caller, receive: Receive
    ) -> tuple[Session, Answer]:
        """Open a session, or continue one, and generate the first token after the committed ones unless it exists.

        Stops waiting when `receive` says that the client has disconnected; the session stays if it has a token.
        """
        engine, backend = self.engine, self.engine.backend
        request = request.model_copy(update={"session_id": None})
        session = self.sessions.open(session_id, caller, request, lambda new_id: make_session(backend, new_id, request))
        self.texts.cancel(session)
        position = session.prompt_len + len(request.committed_ids)
        with self.sessions.in_use(session):
            next_in, self_continue = seconds(request.next_in_ms), request.self_continue or None
            pending = self._engine_client.prepare(session, position, next_in=next_in, self_continue=self_continue)
            return session, await self._engine_client.answer(engine, pending, receive)

    def session(self, session_id: str, caller: Caller) -> Session:
        """The caller's session of this id. Raises UnknownSession."""
        _ = self.engine  # while the model loads, ModelLoading says more than UnknownSession
        return self.sessions.get(session_id, caller.owner)

    def latest(self, caller: Caller) -> Session:
        """The caller's latest session. Raises UnknownSession, and SelfContinueRefused if it has self_continue."""
        _ = self.engine
        session = self.sessions.latest(caller)
        if session.self_continue:
            raise implicit("session_id")
        return session

    def open_text(
        self, request: messages.GenerateRequest, session_id: str | None = None, caller: Caller = ANYONE
    ) -> GeneratedText:
        """A text that `texts` can generate. Raises what `Generator.open` raises."""
        return self.texts.open(request, session_id, caller, self.engine, self._server_drafting)

    def _removed(self, session: Session) -> None:
        self.texts.cancel(session, UnknownSession(f"session {session.id} was deleted while its text was written"))
        if self._engine is not None:
            self._engine.forget(session)

    def _replaced(self, old: Session, new: Session) -> None:
        self.texts.cancel(old)
        if self._engine is not None:
            self._engine.replace(old, new)

    def _load(self) -> None:
        try:
            with ExitStack() as on_failure:
                self._engine = self._loaded(on_failure)
                on_failure.pop_all()
            return
        except BackendError as error:
            self.failure = str(error)
        except Exception as error:  # an unexpected crash of an engine must reach the user, too
            _log.exception("loading the model failed")
            self.failure = f"{type(error).__name__}: {error}"
        _log.error("the model could not be loaded: %s", several_lines(self.failure))
        if self._on_failure is not None:
            self._on_failure()

    def _loaded(self, on_failure: ExitStack) -> Engine:
        """Load the models and time their passes. Returns the running engine; on an error `on_failure` frees them."""
        settings = self.settings
        share = 1.0 - _DRAFT_SHARE * settings.drafts
        backend = self._backend or load(
            settings.backend, settings.load_options(), lambda fraction: self._report(share * fraction)
        )
        on_failure.callback(backend.close)
        _log.info(
            "%s: %d KV cache slots of %d tokens, %.1f MiB",
            one_line(backend.model_name),  # a file name may hold control characters
            backend.slots,
            backend.context_length,
            backend.kv_bytes / 2**20,
        )
        self._pass_ms = pass_cost(backend, time.perf_counter)
        draft = load_draft_model(
            settings,
            backend,
            lambda fraction: self._report(share + (1.0 - share) * fraction),
            time.perf_counter,
            self._draft,
        )
        if draft is not None:
            self._server_drafting = ServerDrafting(draft, self._pass_ms, self._clock, self.outbox.deliver)
            _log.info(
                "%s drafts for %d texts at once, %.1f ms a step", one_line(draft.name), draft.slots, draft.step_ms
            )
        engine = Engine(
            backend,
            settings.max_drafts,
            self._clock,
            prefill_chunk=settings.prefill_chunk,
            max_queue=settings.max_queue,
            batching_window=LONGEST,
            pass_ms=self._pass_ms,
            deliver=self.outbox.deliver,
        )
        engine.start()
        return engine

    def _report(self, fraction: float) -> None:
        """Note the progress of loading, and log it now and then. Called from the loader's thread."""
        now = time.monotonic()
        if fraction < 1.0 and now - self._logged >= _LOG_EVERY:
            self._logged = now
            _log.info("loading the model: %.0f %%", 100 * fraction)
        self.progress = fraction


def loading_wait(seconds: float, progress: float) -> int:
    """Retry-After while the model loads: the whole seconds that loading is expected to take on, 1 to 60.

    `seconds`: how long loading has taken so far. `progress`: 0 to 1.
    """
    left = seconds * (1.0 - progress) / progress if progress > 0.0 else seconds
    return math.ceil(min(max(left, 1.0), 60.0))
