"""Loads the models in a separate thread, times their passes, and starts the engine."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from backends.machine import corpus_folder
from gateway.openai_api.chat.template import Renderer
from specpair.corpus.draft_corpus import BadCorpus, DraftCorpora
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.engines.backend import Backend
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.fairness import retry_after
from specpair.grammar.of_text import forget_grammars, prepare_grammars
from specpair.numbers import counted
from specpair.protocol.errors import InvalidRequest, ModelFailed, ModelLoading, NoChatTemplate
from specpair.protocol.terminal_text import one_line, several_lines
from specpair.speculation.policy.cost_by_width import CostByWidth
from verifier_server.engine.choice import load_target
from verifier_server.engine.interface import EngineObserver, LoadedEngine, Serving, TokenEngine
from verifier_server.generation.draft_model import load_draft_model, lookup_alone
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.model_files import fetch_programs, of_loading, with_files
from verifier_server.settings import Settings

_TRIED = {
    "messages": [{"role": "user", "content": "Hello"}],
    "add_generation_prompt": True,
    "bos_token": "",
    "eos_token": "",
}
_log = logging.getLogger("specpair.verifier")
_SLICE = 0.1  # seconds that a wait lasts at a time
_FETCH_SHARE = 0.9  # fetching's fraction of the progress, where a model is fetched
_DRAFT_SHARE = 0.1  # the draft model's fraction of the loading progress; it is a small model


def choose_chat_template(backend: Backend | LoadedEngine, chosen: str | None) -> None:
    """Have `backend` serve the template `chosen`, a path or a name; None: the model's usual one.

    Raises ModelLoadError if there is none, or if it cannot render a message.
    """
    if chosen is None:
        return
    template = backend.chat_templates.get(chosen)
    if template is None:
        try:
            template = Path(chosen).read_text(encoding="utf-8")
        except (ValueError, OSError) as error:
            named = ", ".join(sorted(backend.chat_templates)) or "none"
            reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
            raise _wrong(f"{chosen}: {reason}; templates in the model's files: {named}") from None
    try:
        with closing(Renderer()) as renderer:
            renderer.render(template, _TRIED)
    except InvalidRequest:
        pass  # it is well, and takes other messages
    except NoChatTemplate as error:
        raise _wrong(f"{chosen} cannot be used: {error}") from None
    backend.chat_template = template


def _wrong(reason: str) -> ModelLoadError:
    return ModelLoadError(f"chat_template: {reason}", "chat_template")


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """The loaded models, ready to be used."""

    engine: TokenEngine  # runs the target model
    own_name: str  # of the target, which `Settings.alias` may call otherwise
    pass_times: CostByWidth  # of the target
    drafting: ServerDrafting | None  # None: nothing drafts here
    predicting: ServerDrafting  # for texts with a prediction: `drafting`, or by lookup alone without a draft model

    def stop(self) -> None:
        """Stop the engine and free the models."""
        self.engine.stop()
        self.predicting.stop()
        forget_grammars(self.engine.info.vocabulary)


class ModelLoader:
    """Loads the models of a verifier. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        deliver: Callable[[], None],
        backend: Backend | None = None,
        draft: Backend | None = None,
        observer: Callable[[str], EngineObserver] = lambda _model_name: EngineObserver(),
    ) -> None:
        """`clock`, `deliver`: the engine's.
        `backend`, `draft`: target and draft model, if loaded already.
        `observer`: makes the engine's observer, for a model of this name.
        """
        self.progress = 0.0  # 0 to 1
        self.failure: str | None = None  # why the models could not be loaded
        self.models: LoadedModels | None = None  # None: not loaded yet, or failed
        self.stopping = False  # whether the verifier ends, so that it is never ready for texts
        self._settings, self._clock, self._deliver = settings, clock, deliver
        self._backend, self._draft, self._observer = backend, draft, observer
        self._began = time.monotonic()
        self._fetched = 0.0  # the share of fetching in the progress
        self._log_progress = of_loading()
        self._on_failure: Callable[[], object] = lambda: None
        self._on_success: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(
        self, on_failure: Callable[[], object] = lambda: None, on_success: Callable[[], object] = lambda: None
    ) -> None:
        """Begin to load. The loader's thread then calls one of the two functions. If the engine dies later, its thread
        calls `on_failure`."""
        self._on_failure, self._on_success = on_failure, on_success
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the loader has finished, at most `seconds`. Returns whether it has.

        It waits in slices: a signal that arrives just before a lock blocks the main thread does not interrupt the lock,
        and its handler would run only after the whole wait.
        """
        until = inf if seconds is None else time.monotonic() + seconds
        while self._thread.is_alive() and (left := until - time.monotonic()) > 0:
            self._thread.join(min(left, _SLICE))
        return not self._thread.is_alive()

    def loaded(self) -> LoadedModels:
        """The models. Raises ModelLoading or ModelFailed while there are none."""
        if self.failure is not None:
            raise ModelFailed(f"the model could not be loaded: {self.failure}")
        if self.models is None:
            raise ModelLoading(
                f"the model is loading ({self.progress:.0%}): wait and ask again",
                progress=self.progress,
                retry_after=self.wait_expected,
            )
        return self.models

    @property
    def wait_expected(self) -> int:
        """The estimated remaining seconds of loading, 1 to 60."""
        taken = time.monotonic() - self._began
        left = taken * (1.0 - self.progress) / self.progress if self.progress > 0.0 else taken
        return min(retry_after(left), 60)

    def _run(self) -> None:
        try:
            self.models = self._load()
            self._on_success()
            if not self.stopping:
                _log.info("ready: the model is loaded")
            return
        except _Stopped as stopped:
            _log.info("%s", stopped)
            return
        except BackendError as error:
            self.failure = self._settings.explained(error)
        except Exception as error:  # an unexpected crash of an engine must reach the user, too
            _log.exception("loading the model failed")
            self.failure = f"{type(error).__name__}: {error}"
        _log.error("the model could not be loaded: %s", several_lines(self.failure))
        self._on_failure()

    def _load(self) -> LoadedModels:
        """Load the models and time their passes. Frees the target if one of these steps fails."""
        settings, deliver = self._settings, self._deliver
        if self._backend is None:
            settings = with_files(settings, self._report_fetching)
            self._fetched = self.progress
            fetch_programs(settings)
        share = 1.0 - _DRAFT_SHARE * settings.drafts
        with ExitStack() as on_failure:
            target = load_target(settings, self._backend, lambda part: self._report(share * part), self._check)
            on_failure.callback(target.close)
            own = target.info
            _log.info(
                "%s: %s of %d tokens, %.1f MiB",
                one_line(own.model_name),  # a file name may hold control characters
                counted(own.slots, "KV cache slot"),
                own.context_length,
                own.kv_bytes / 2**20,
            )
            choose_chat_template(target, settings.chat_template)
            info = replace(own, model_name=settings.alias or own.model_name, chat_template=target.chat_template)
            # Here, since both take a while, and the event loop must not wait for them.
            _ = info.vocabulary.fingerprint
            prepare_grammars(info.vocabulary)
            draft = load_draft_model(
                *(settings, info, lambda part: self._report(share + (1.0 - share) * part), time.perf_counter),
                self._draft,
            )
            lookup = draft or lookup_alone(settings, info, time.perf_counter)
            pass_times = CostByWidth.of(target.pass_times)
            try:
                corpus = DraftCorpora(settings.draft_corpus, corpus_folder()).of(info.vocabulary)
            except BadCorpus as error:
                raise ModelLoadError(f"draft_corpus: {error}", "draft_corpus") from None
            if corpus is not None:
                on_failure.callback(corpus.close)
            earlier = EarlierTexts(self._clock) if settings.keep_tokens != 0 else None
            predicting = ServerDrafting(lookup, pass_times, self._clock, deliver, corpus, earlier)
            if draft is not None:
                _log.info(
                    "%s drafts for %s at once, %.1f ms a step",
                    one_line(draft.name),
                    counted(draft.slots, "text"),
                    1e3 * draft.step_time,
                )
            observer = self._observer(info.model_name)
            engine = target.serve(Serving(info, self._clock, deliver, observer, self._on_failure))
            on_failure.pop_all()
        return LoadedModels(engine, own.model_name, pass_times, None if draft is None else predicting, predicting)

    def _check(self, stopped: str = "stopped before the model was there") -> None:
        if self.stopping:
            raise _Stopped(stopped)

    def _report_fetching(self, fraction: float) -> None:
        """Note the progress of fetching the models. Called from the loader's thread. Raises _Stopped."""
        self._check("stopped while fetching the model: the next start continues")
        self.progress = _FETCH_SHARE * fraction

    def _report(self, fraction: float) -> None:
        """Note the progress of loading, and log it now and then. Called from the loader's thread."""
        self._log_progress(fraction)
        self.progress = self._fetched + (1.0 - self._fetched) * fraction


class _Stopped(Exception):
    """The verifier was stopped while it fetched or waited for a model."""
