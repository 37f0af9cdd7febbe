"""The verifier without HTTP: holds the models and the sessions, and answers prefills, verifies and texts."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from backends.machine import machine_id
from specpair.engines.backend import Backend
from specpair.engines.vocabulary import PromptSpan, Vocabulary
from specpair.grammar.turns import GrammarCompiler
from specpair.http_service.keys.access import ANYONE, VERIFIER, Caller
from specpair.http_service.keys.gate import Gate
from specpair.http_service.observability.health import Condition
from specpair.http_service.observability.logs import note_session
from specpair.http_service.observability.metrics import ServiceMetrics
from specpair.http_service.request_bodies import RequestBodies
from specpair.http_service.shutdown import GRACE, Draining
from specpair.numbers import milliseconds
from specpair.protocol import messages
from specpair.protocol.errors import UnknownSession
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.service_responses import HealthResponse, ModelInfo, VocabularyResponse, identity_of
from specpair.speculation.draft import Draft
from specpair.speculation.policy.timing import NARROW
from specpair.speculation.sampling import gumbel
from specpair.speculation.text_options import TextSpec
from verifier_server.earlier_prompts import MOST, EarlierPrompts
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.interface import AWAY_WAIT, EngineState, TokenEngine
from verifier_server.engine.pass_time import WIDER
from verifier_server.generation.engine_client import Accounting, EngineClient
from verifier_server.generation.generator import GenerationTask, Generator
from verifier_server.generation.prompts import P, encode_parts, encode_text, in_thread, make_session, with_ids
from verifier_server.generation.verify_requests import Verifying, needs_position_and_session
from verifier_server.loading import ModelLoader
from verifier_server.observability import EngineFeed, EngineMetrics, ServiceGauges, log_text
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session
from verifier_server.settings import Settings


class Service:
    """One target model and its sessions. Used by the event loop's thread only."""

    def __init__(
        self,
        settings: Settings,
        backend: Backend | None = None,
        clock: Callable[[], float] = time.perf_counter,
        draft: Backend | None = None,
    ) -> None:
        """`clock`: the engine's clock, in seconds.
        `backend`, `draft`: target and draft model, if loaded already.

        Raises SettingsError for a file of keys that cannot be read.
        """
        self.settings = settings
        self.gate = Gate.of(
            settings.api_key, settings.keys_file, settings.insecure, VERIFIER, settings.key("keys_file")
        )
        self.accounting = Accounting(self.gate.accounts)
        self.engine_client = EngineClient()
        self.metrics = ServiceMetrics(self._model_name, by_key=settings.metrics_by_key)
        self.feed = EngineFeed()
        self.draining = Draining(settings.drain_seconds, lambda: self.sessions.admission.text_under_way())
        self.sessions = SessionTable(
            time.monotonic,
            settings.session_ttl,
            settings.max_sessions,
            self._removed,
            self._replaced,
            quota=settings.quota,
            check_new=self.draining.check_new_text,
            on_change=self.draining.changed,
        )
        self.earlier = EarlierPrompts(self.sessions, 0 if settings.keep_tokens == 0 else MOST)
        self.loader = ModelLoader(
            settings,
            clock,
            self.engine_client.deliver,
            backend,
            draft,
            partial(EngineMetrics, self.metrics, self.feed, self._ended, clock),
        )
        gauges = ServiceGauges(self.metrics.model_name, self.condition, self.sessions, self._engine_state)
        self.metrics.registry.register(gauges)
        self.verifying = Verifying(self.engine_client, self.sessions, self.accounting)
        self.texts = Generator(self.engine_client, self.sessions, self.accounting)
        self._grammars = GrammarCompiler()
        self._whole_vocabulary: tuple[Vocabulary, bytes] | None = None  # of which vocabulary
        self._identity: str | None = None
        self.bodies = RequestBodies(settings.max_body_bytes, settings.body_timeout, self.context_length)
        self.texts_full: Callable[[], bool] = lambda: False  # whether OpenAI's endpoints refuse further texts
        self.stopping = False

    def begin_stop(self) -> None:
        """Begin to stop: open requests have `GRACE` seconds to finish; then they get an error."""

        def shut_down() -> None:
            self._grammars.stop()
            if self.loader.models is not None:
                self.loader.models.engine.shut_down()

        if not self.stopping:
            self.stopping = True
            self.feed.close()
            asyncio.get_running_loop().call_later(GRACE, shut_down)

    def stop(self) -> None:
        """Wait for the loader, stop the engine and free the models."""
        self.loader.stopping = True
        self.loader.wait()
        self._grammars.stop()
        if self.loader.models is not None:
            self.loader.models.stop()

    @property
    def engine(self) -> TokenEngine:
        """The running engine. Raises ModelLoading or ModelFailed while there is none."""
        return self.loader.loaded().engine

    @property
    def failure(self) -> str | None:
        """Why the verifier has failed for good: the load failed, or the engine died."""
        models = self.loader.models
        return self.loader.failure or (None if models is None else models.engine.failure)

    def works(self, seconds: float) -> bool:
        """Whether the engine is idle, or has made progress within so many seconds. True during a load."""
        models = self.loader.models
        since = None if models is None else models.engine.busy_since
        return since is None or time.monotonic() - since <= seconds

    def condition(self) -> Condition:
        """Whether the verifier takes new texts, and why not."""
        return self._condition()[0]

    def _condition(self) -> tuple[Condition, str | None]:
        """The condition, and the reason of a failure or of a wait."""
        models = self.loader.models
        if self.failure is not None:
            return Condition("failed"), self.failure
        if self.stopping or self.draining.begun:
            return Condition("draining", 1), None
        if models is None:
            return Condition("loading", self.loader.wait_expected), None
        if models.engine.away is not None:
            return Condition("loading", AWAY_WAIT), models.engine.away
        overloaded = models.engine.state.full or self.sessions.admission.full or self.texts_full()
        return Condition("overloaded", 1) if overloaded else Condition("ready"), None

    def health(self) -> HealthResponse:
        """The reply to `GET /health`. An overloaded verifier is ready: its running texts continue."""
        (status, _), reason = self._condition()
        if status == "failed":
            return HealthResponse(status="failed", reason=reason)
        if status == "draining":
            return HealthResponse(status="draining")
        if (models := self.loader.models) is None:
            return HealthResponse(status="loading", progress=round(self.loader.progress, 3))
        if status == "loading":
            return HealthResponse(status="loading", reason=reason)
        state = models.engine.state
        return HealthResponse(
            status="ready",
            overloaded=status == "overloaded",
            model=models.engine.info.model_name,
            identity=self.identity,
            sessions=len(self.sessions),
            texts=state.slots_in_use,
            waiting=state.waiting,
            generated_tokens=self.gate.accounts.generated_tokens,
            pass_seconds=round(self.feed.pass_seconds, 3),
            # Texts of mode fused continue without drafts.
            draft_model_failure=None if models.drafting is None else models.drafting.draft.failure,
        )

    def model(self, below: int | None = None) -> ModelInfo:
        """The reply to `GET /model`. `below`: as for `vocabulary`."""
        return self._described(below).model_copy(update={"identity": self.identity})

    @property
    def identity(self) -> str:
        """The identity, which differs for another model or service: see `specpair.protocol.service_responses`."""
        if self._identity is None:
            self._identity = identity_of(self._described(), self.loader.loaded().own_name)
        return self._identity

    def _described(self, below: int | None = None) -> ModelInfo:
        """The `/model` reply without the identity."""
        models = self.loader.loaded()
        backend, draft = models.engine.info, None if models.drafting is None else models.drafting.draft
        wide = [tokens for tokens in WIDER if tokens <= len(models.pass_times)]
        return ModelInfo(
            name=backend.model_name,
            identity="",
            engine=backend.name,
            context_length=backend.context_length,
            rows=backend.slots,
            kv_bytes=backend.kv_bytes,
            max_drafts=models.engine.info.max_drafts,
            pass_ms=[milliseconds(each) for each in models.pass_times[:NARROW]],
            wide_pass_ms=[(tokens, milliseconds(models.pass_times[tokens - 1])) for tokens in wide],
            trees=backend.takes_trees,
            max_tree_leaves=backend.max_leaves if backend.takes_trees else None,
            max_tree_nodes=backend.max_nodes if backend.takes_trees else None,
            strategies=[str(strategy) for strategy in backend.strategies],
            refused=dict(backend.lacks),
            self_continue=True,
            modes=["target"] if draft is None else ["target", "fused"],
            predictions=True,
            prefixes=True,
            draft_model=None if draft is None else draft.name,
            draft_pass_ms=None if draft is None else milliseconds(draft.step_time),
            head=backend.head_name if backend.head_depth else None,
            head_depth=backend.head_depth,
            head_pass_ms=milliseconds(backend.head_time) if backend.head_depth else None,
            threads=backend.threads,
            machine=machine_id(),
            noise=gumbel.NAME,
            vocabulary=self.vocabulary(below),
            chat_template=backend.chat_template,
        )

    def vocabulary(self, below: int | None = None) -> Fingerprint:
        """Fingerprints of the vocabulary's first `below` ids; None: of all ids."""
        vocabulary = self.engine.info.vocabulary
        return vocabulary.fingerprint_below(vocabulary.size if below is None else below)

    def whole_vocabulary(self) -> bytes:
        """The body of the reply to `GET /vocabulary`. It is costly to make; every drafter without a model asks."""
        vocabulary = self.engine.info.vocabulary
        if self._whole_vocabulary is None or self._whole_vocabulary[0] is not vocabulary:
            body = VocabularyResponse(
                size=vocabulary.size,
                begin=vocabulary.begin,
                ends=sorted(vocabulary.ends),
                end=vocabulary.end,
                kinds="".join(str(int(kind)) for kind in vocabulary.kinds),
                pieces=[piece.decode("latin-1") for piece in vocabulary.pieces],
            ).body()
            self._whole_vocabulary = vocabulary, body
        return self._whole_vocabulary[1]

    async def tokenize(self, request: messages.TokenizeRequest) -> list[int]:
        """Token ids of the text or the parts in `request`. Raises PromptTooLong and InvalidRequest."""
        backend = self.engine.info
        if request.parts is not None:
            parts = [PromptSpan(each.text, each.parse_control) for each in request.parts]
            return await in_thread(
                sum(len(part.text) for part in parts), partial(encode_parts, backend, "parts", parts)
            )
        text, flags = request.text or "", {"add_begin": request.add_begin, "parse_control": request.parse_control}
        return await in_thread(len(text), partial(encode_text, backend, "text", text, **flags))

    async def prepared(self, request: P, caller: Caller) -> P:
        """`request` with its whole prompt, its long texts as token ids, and its grammar compiled.

        Raises UnknownPrefix, PromptTooLong and InvalidRequest.
        """
        request = await with_ids(self.engine.info, self.earlier.whole(request, caller))
        await self.compile_grammar(request.spec, caller)  # last: a grammar is not kept for long
        return request

    async def compile_grammar(self, spec: TextSpec, caller: Caller) -> None:
        """Compile the grammar of a text, if it has one. Raises InvalidRequest and Overloaded."""
        await self._grammars.compile(spec, self.engine.info.vocabulary, caller.client)

    async def prefill(
        self, request: messages.PrefillRequest, session_id: str | None, caller: Caller
    ) -> tuple[Session, Answer]:
        """Open a session, or continue one, and generate the first token after the committed ones unless it exists.

        If the wait is cancelled, the session stays if it has a token.
        """
        engine, backend = self.engine, self.engine.info
        request = request.model_copy(update={"session_id": None})
        session = self.sessions.open(session_id, caller, request, lambda new_id: make_session(backend, new_id, request))
        note_session(session.id)
        self.texts.cancel(session)
        session.self_continue = request.self_continue
        position = session.prompt_len + len(request.committed_ids)
        with self.sessions.in_use(session):
            first = Request(session, Draft(position), policy=request.policy)
            answer = await self.engine_client.answer(engine, first)
            self.accounting.answered(session, answer)
            return session, answer

    def session(self, session_id: str, caller: Caller) -> Session:
        """The caller's session of this id. Raises UnknownSession."""
        _ = self.engine  # while the model loads, ModelLoading says more than UnknownSession
        session = self.sessions.get(session_id, caller.owner)
        note_session(session.id)
        return session

    def latest(self, caller: Caller) -> Session:
        """The caller's latest session. Raises UnknownSession, and SelfContinueRefused if it has self_continue."""
        _ = self.engine
        session = self.sessions.latest(caller)
        note_session(session.id)
        if session.self_continue:
            raise needs_position_and_session("session_id")
        return session

    def open_text(
        self, request: messages.GenerateRequest, session_id: str | None = None, caller: Caller = ANYONE
    ) -> GenerationTask:
        """A text that `texts` can generate. Raises what `Generator.open` raises."""
        models = self.loader.loaded()
        drafting = models.predicting if request.predicts else models.drafting
        text = self.texts.open(request, session_id, caller, models.engine, drafting)
        note_session(text.session.id)
        return text

    def context_length(self) -> int:
        """Tokens that the context holds; 0 while there is no model."""
        return 0 if self.loader.models is None else self.loader.models.engine.info.context_length

    def _model_name(self) -> str:
        return "" if self.loader.models is None else self.loader.models.engine.info.model_name

    def _engine_state(self) -> EngineState | None:
        return None if self.loader.models is None else self.loader.models.engine.state

    def _ended(self, session: Session) -> None:
        """Log an ended text. Called from the engine's thread, which must not wait for the log."""
        self.engine_client.put(partial(log_text, session))

    def _removed(self, session: Session) -> None:
        self.accounting.over(session)
        self.earlier.keep(session)
        if session.finish_reason is None:
            log_text(session)
        self.texts.cancel(session, UnknownSession(f"session {session.id} was deleted while its text was written"))
        self.engine.forget(session)

    def _replaced(self, old: Session, new: Session) -> None:
        self.accounting.over(old)
        self.texts.cancel(old)
        self.engine.replace(old, new)
