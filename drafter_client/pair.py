"""`Pair`: a verifier and a drafter, used as one language model by the command line and by programs."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import httpx

from backends.machine import corpus_folder
from drafter_client.conversation import Messages, chat_ids, conversation
from drafter_client.draft_sources import DraftModel, Source, Undrafted
from drafter_client.errors import BadOption, BadPrompt, DrafterError, ModelChanged, VocabularyMismatch
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Listener, prompt_reader, to_all
from drafter_client.generation.generation import Generation
from drafter_client.generation.resuming import Run
from drafter_client.generation.text_session import TextSession
from drafter_client.http.addresses import Address, addresses_of
from drafter_client.http.client import VerifierClient
from drafter_client.http.health import Health
from drafter_client.http.outages import Outage, Outages
from drafter_client.http.retries import PATIENCE
from drafter_client.http.several.known import VerifierState
from drafter_client.http.several.verifiers import Verifiers
from drafter_client.http.stop import Stop
from drafter_client.metrics.statistics import Stats
from drafter_client.modes.memory import ModeMemory
from drafter_client.options import Mode, Options
from drafter_client.pairing import Paired, Pairing
from drafter_client.places import Places
from drafter_client.text_run import TextRun
from drafter_client.token_ids import foreign_id, with_prediction_ids
from gateway.openai_api.chat.template import Renderer
from specpair.corpus.draft_corpus import BadCorpus, CorpusState, DraftCorpora
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.errors import BadGateway, SpecPairError
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.service_responses import ModelInfo

_log = logging.getLogger("specpair.drafter")
VERIFIER = "http://127.0.0.1:8000"
BRANCHES = 6
_PINGS = 3  # measurements of the round trip at the start
_MISSING = {
    Mode.FUSED: "this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL (or with "
    "VERIFIER_DRAFT_BACKEND=ngram), give a prediction, or choose another mode",
    Mode.REMOTE: "this pair has no drafter: make it with a draft source, or choose the mode fused or target",
}


class Observer(Protocol):
    """Watches the texts of a pair; `trace.writer.TraceFolder` is one."""

    def run(self, stats: Stats, settings: Mapping[str, Any]) -> AbstractContextManager[Listener]:
        """A context around the run of one text, which yields the listener that takes the text's events.

        `stats`: the statistics of the text, complete when the context is left.
        `settings`: the options of the text.
        """


class TextUnderWay(NamedTuple):
    """A text that is being generated, and where."""

    session_id: str
    address: Address  # of its verifier


class Pair:
    """A verifier and the drafter on this machine. Close the pair, or use it in a `with` block.

    It generates up to `texts` texts at a time, each read by a thread of its own.
    """

    def __init__(
        self,
        verifier: str | Sequence[str] = VERIFIER,
        draft: Source | None = DraftModel(),
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        branches: int = BRANCHES,
        texts: int = 1,
        observer: Observer | None = None,
        memory: Path | str | None = None,
        corpus: Sequence[Path | str] = (),
        patience: float = PATIENCE,
        start_patience: float | None = None,
        on_wait: Callable[[float | None], None] | None = None,
        on_outage: Callable[[Outage], None] | None = None,
        on_prompt: Callable[[PromptProgress], None] | None = None,
        on_notice: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wait until the verifier is ready, load the draft model, and check that both use the same vocabulary.

        `verifier`: its URL; or those of several verifiers of one model, with commas between them. So is a name that has
            several network addresses. Each text goes to the fastest that is ready, and on at another one when that
            goes away (docs/several-verifiers.md).
        `draft`: the source of drafts; None: nothing is drafted on this machine.
        `api_key`: the verifier's key, if it needs one.
        `branches`: continuations of a text that are drafted at once, so that drafts are ready for likely recovered
            tokens.
        `texts`: texts that can be generated at a time.
        `observer`: takes the events of each text, for example a `TraceFolder` (docs/traces.md).
        `memory`: a file in which mode `auto` keeps its measurements of each mode (the command line's is
            `memory_file()`); None: nothing is kept.
        `corpus`: files and folders of the user from which draft tokens are looked up, too (docs/modes.md).
        `patience`: seconds to wait for a lost verifier; a text resumes when the verifier is back, and otherwise raises
            the error that showed the loss.
        `start_patience`: the same for a text that has not begun; None: as long.
        `on_wait`: called while the verifier loads its model, with the progress from 0 to 1, or None if it is unknown.
        `on_outage`: called about once a second during an outage, and when it is over.
        `on_prompt`: called every few seconds while the verifier reads a long prompt.
        `on_notice`: called, in any thread, with what happens to one of several verifiers; None: that is logged.
        `clock`: returns seconds.

        Raises SpecPairError, DrafterError or BackendError if the verifier or the draft model cannot be used.
        """
        for name, count in (("branches", branches), ("texts", texts)):
            if count < 1:
                raise BadOption(f"{name} must be at least 1, got {count}")
        for name, seconds in (("patience", patience), ("start_patience", start_patience)):
            if seconds is not None and not seconds >= 0:
                raise BadOption(f"{name} must be at least 0 seconds, got {seconds!r}")
        if transport is not None and not isinstance(transport, httpx.BaseTransport):
            raise BadOption(f"transport must be synchronous, such as an httpx.HTTPTransport, not {transport!r}")
        self._clock = clock
        self._observer, self._on_prompt = observer, on_prompt
        self._generations: WeakSet[Generation] = WeakSet()
        self._writing: dict[int, tuple[TextSession, VerifierClient]] = {}  # the texts under way, by their `id`
        self._closed = self._ending = False
        self._renderer = Renderer()  # of chat templates
        self._outages = Outages(patience, on_outage, start_patience=start_patience)
        self._earlier = EarlierTexts(clock)
        try:
            self._corpora = DraftCorpora([Path(each) for each in corpus], corpus_folder())
        except BadCorpus as error:
            raise BadOption(f"corpus: {error}") from None
        addresses = addresses_of(verifier, direct=transport is None)
        with ExitStack() as stack:
            client = VerifierClient(*addresses[0], api_key=api_key, outages=self._outages, transport=transport)
            stack.enter_context(closing(client))
            stack.enter_context(closing(self._renderer))
            stack.enter_context(closing(self._corpora))
            self._verifiers: Verifiers | None = None
            if len(addresses) > 1:
                self._verifiers = stack.enter_context(closing(Verifiers(client, addresses, on_notice or _log.warning)))
                self._verifiers.wait_until_ready(on_wait)
                client.others = self._verifiers
                client.move_to(self._verifiers.chosen())
            else:
                try:
                    client.wait_until_ready(on_wait=on_wait)
                except BadGateway:  # its verifier may be restarting; one that was never there is not waited for
                    self._outages.retry_through_outage(
                        lambda: client.wait_until_ready(on_wait=on_wait), lambda: client.health(started=False)
                    )
            drafting = stack.enter_context((draft or Undrafted()).open(client, branches, texts))
            # Not `client` itself, which may encode prompts while texts are generated.
            others = [stack.enter_context(closing(client.another())) for _ in drafting.drafters]
            for each in others:
                each.connection.connect()
            try:
                self._corpora.of(drafting.vocabulary)  # indexed from now on
            except BadCorpus as error:
                raise BadOption(f"corpus: {error}") from None
            self._places = Places(others)
            link, kept = client.least_round_trip(_PINGS), None if memory is None else ModeMemory(Path(memory))
            self._client = client
            self._pairing = stack.enter_context(closing(Pairing(client, drafting, link, kept, clock)))
            self._open = stack.pop_all()

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all generations, close the connections and free the draft model, even if one of these fails.

        The requests of other threads that are reading an event are aborted; their draft steps are waited for. Must not
        be called while the calling thread itself is reading an event, for example by a drafter.
        """
        self._closed = True
        self.wait_no_more()
        self.end_texts()
        with ExitStack() as stack:
            stack.callback(self._open.close)
            for generation in list(self._generations):
                stack.callback(generation.close)

    def wait_no_more(self) -> None:
        """Have every text end that waits for a lost verifier, now or later. May be called from any thread; returns at
        once."""
        self._outages.stop.set()

    def end_texts(self) -> None:
        """Have every text end, now and later, and abort its request. May be called from any thread; returns at once."""
        self._ending = True
        for text, _ in self._writing.copy().values():
            text.stop.set()

    @property
    def round_trip_ms(self) -> float:
        """The round trip to the verifier in milliseconds: the shortest that was measured when the pair was made, or
        that of the present link if mode `auto` found another one."""
        return 1e3 * self._pairing.present.selection.link

    @property
    def target(self) -> ModelInfo:
        """The target model, as the verifier's `/model` describes it. Where another one answers, the next text takes it
        over, or raises VocabularyMismatch if this pair cannot draft for it."""
        return self._pairing.present.info

    @property
    def paired(self) -> Paired:
        """The model that the verifier serves, as far as is known, with all that is kept of it."""
        return self._pairing.present

    @property
    def refusal(self) -> VocabularyMismatch | None:
        """Why no text can be generated with what the verifier serves now; None: one can."""
        return self._pairing.refusal

    @property
    def outage(self) -> Outage | None:
        """The present outage of the verifier; None: none is known."""
        return self._outages.present

    @property
    def verifiers(self) -> list[VerifierState]:
        """What is known of each verifier."""
        if self._verifiers is not None:
            return self._verifiers.states
        outage, present = self.outage, self._pairing.present
        return [VerifierState(present.address, "" if outage is None else outage.why, present.selection.link)]

    @property
    def texts_under_way(self) -> list[TextUnderWay]:
        """The texts that are being generated. May be asked for in any thread."""
        return [TextUnderWay(text.session_id, client.address) for text, client in self._writing.copy().values()]

    def connection_to(self, address: Address) -> VerifierClient:
        """A client for one of `verifiers` with a connection of its own, which stays there and waits for nothing. It is
        the caller's to close."""
        return self._client.another(address, alone=True)

    @property
    def start_patience(self) -> float:
        """Seconds that a text that has not begun waits for a lost verifier."""
        return self._outages.start_patience

    def look(self) -> None:
        """Ask once whether the verifier is ready, and take over another model. What is found is in `outage`, `refusal`
        and `target`. A pair that generates texts needs no such look."""
        try:
            if self._verifiers is not None:
                health = self._verifiers.outage or Health(True)
            else:
                with closing(self._client.another()) as client, self._outages.stop.breaking(client.abort):
                    health = client.health()
            if not health.ready:
                self._outages.noticed(health.why, health.progress)
                return
            self._outages.answered()
            present = self._pairing.present
            if self._verifiers is not None:
                self._at(self._verifiers, present.address)
            elif self.refusal is not None or (health.identity and health.identity != present.info.identity):
                self._pairing.take_over(present)
        except VocabularyMismatch as error:
            _log.warning("%s", error)
        except (SpecPairError, DrafterError) as error:
            self._outages.noticed(str(error))

    @property
    def draft_model(self) -> str | None:
        """Name of the drafter on this machine; None: there is none."""
        return self._pairing.present.drafting.name

    @property
    def vocabulary(self) -> Vocabulary:
        """The target's vocabulary. To encode with it may be a request to the verifier. May be used by any thread."""
        return self._pairing.present.drafting.vocabulary

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt in the target's vocabulary. May be called from any thread."""
        return self.vocabulary.encode(prompt)

    def chat(self, message: str | Messages, system: str | None = None) -> list[int]:
        """Return the token ids of a conversation in the target's chat template.

        `message`: what the user says, or several messages in OpenAI's form.
        `system`: a system message before them; None: there is none.

        May be called from any thread. Raises NoChatTemplate, and InvalidRequest for messages that the template refuses.
        """
        return chat_ids(self.target.chat_template, self.vocabulary, conversation(message, system), self._renderer)

    def generate(
        self,
        prompt: str | Sequence[int],
        options: Options = Options(),
        *,
        identity: str | None = None,
        shown: Sequence[str] = (),
    ) -> Generation:
        """Return an iterator of the events of a text that continues `prompt` (text or token ids).

        `identity`: that of the target (`pair.target.identity`) for which the prompt was made; None: the text may be
        that of any target with the vocabulary of the present one. A text under way never goes on with another model's.

        `shown`: a control token whose name is in one of these texts has its name as its characters, as the markers of
        thoughts must be seen; other control tokens have none.

        Raises BadPrompt, BadOption, ModelChanged, VocabularyMismatch; RuntimeError when the pair is closed. Later
        errors are raised by the iterator, PairBusy with the first event.
        """
        if self._closed:
            raise RuntimeError("this pair is closed")
        paired = self._paired()
        if identity is not None and identity != paired.info.identity:
            raise ModelChanged(f"the verifier serves {paired.info.name} now, and the prompt was made for another model")
        target, vocabulary = paired.info, paired.drafting.vocabulary
        prompt_ids = vocabulary.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not prompt_ids:  # some vocabularies have no begin token and drop spaces: a prompt of spaces becomes empty
            raise BadPrompt("the prompt is empty, as the model reads it: give at least one character that is no space")
        if (wrong := foreign_id(prompt_ids, target.vocabulary.size)) is not None:
            raise BadPrompt(f"the prompt holds {wrong}")
        options = options.settled()
        options = with_prediction_ids(options, target, vocabulary)
        modes = paired.modes(predicted=options.predicted)
        if (mode := options.settled_mode(modes)) is not options.mode:
            options = options.in_mode(mode)
        elif mode not in (*modes, Mode.AUTO):
            raise BadOption(f"mode {mode}: {_MISSING.get(mode, 'the verifier does not offer it')}")
        stats = Stats(model=target.name, mode=options.mode, sampling=options.described())
        stats.prediction_tokens = None if options.prediction is None else len(options.prediction)
        stats.corpus = None if (corpus := self._corpora.of(vocabulary)) is None else corpus.state
        if len(prompt_ids) + options.max_tokens > target.context_length:
            stats.context = target.context_length
        text = TextSession(prompt_ids, stop=Stop(self._outages.stop))
        run = self._write(text, options, stats, paired, pinned=identity is not None)
        generation = Generation(run, vocabulary, text, options, stats, shown)
        self._generations.add(generation)
        return generation

    @property
    def corpus(self) -> CorpusState | None:
        """What is indexed of the user's files for the present target; None: none are."""
        corpus = self._corpora.of(self.vocabulary)
        return None if corpus is None else corpus.state

    @property
    def modes(self) -> list[Mode]:
        """The modes, without `auto`, that this pair and its verifier offer for texts without a prediction."""
        return self._pairing.present.modes()

    def settled_mode(self, options: Options = Options()) -> Mode:
        """The mode of texts with these options: theirs, or what `auto` is settled to (`Options.settled_mode`)."""
        return options.settled_mode(self._pairing.present.modes(predicted=options.predicted))

    @property
    def fastest(self) -> Mode | None:
        """The mode that `auto` expects to be the fastest; None until that mode was measured over the present link."""
        return self._pairing.present.selection.fastest

    def _write(
        self,
        text: TextSession,
        options: Options,
        stats: Stats,
        paired: Paired,
        *,
        pinned: bool,
    ) -> Run:
        listeners: list[Listener] = [StatsCounter(stats, text).take]
        with ExitStack() as stack:
            place = stack.enter_context(self._places.taken(paired.drafting, text.prompt_ids, options.cache_salt))
            if (on_prompt := self._on_prompt) is not None:
                listeners.append(prompt_reader(on_prompt))
            if self._observer is not None:
                listeners.append(stack.enter_context(self._observer.run(stats, options.settings())))
            may_draft = options.mode in (Mode.REMOTE, Mode.AUTO) and Mode.REMOTE in paired.modes()
            make = paired.drafting.drafters[place.number]
            drafter = make(options, text.prompt_ids) if may_draft else None
            if drafter is not None and paired.drafting.warm:
                text.read = paired.drafting.warm[place.number].begun
            place.client.move_to(paired.address)
            self._writing[id(text)] = text, place.client
            if self._ending:
                text.stop.set()
            stack.callback(self._writing.pop, id(text))
            yield from TextRun(
                place.client,
                drafter,
                paired,
                self._pairing,
                pinned,
                self._outages,
                self._verifiers,
                text,
                options,
                to_all(*listeners),
                self._clock,
                self._corpora,
                self._earlier,
            ).tokens()

    def _paired(self) -> Paired:
        """That of the verifier which a new text goes to."""
        if self._verifiers is None:
            return self._pairing.checked()
        return self._at(self._verifiers, self._verifiers.chosen())

    def _at(self, verifiers: Verifiers, address: Address) -> Paired:
        """That of the verifier at `address`, of several. If all have changed to another model, that is taken over."""
        changed = verifiers.changed(address)
        if changed is None:
            return self._pairing.at(address, *verifiers.of(address))
        taken = self._pairing.take_over(self._pairing.present, address=changed)
        verifiers.adopt(taken.info)
        return taken
