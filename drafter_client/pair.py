"""`Pair`: a verifier and a drafter, used as one language model by the command line and by programs."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Unpack
from weakref import WeakSet

from backends.machine import corpus_folder
from drafter_client.conversation import Messages, chat_ids, conversation
from drafter_client.draft_sources import DraftModel, Source, Undrafted
from drafter_client.errors import DrafterError, ModelChanged, VocabularyMismatch
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Listener, prompt_reader, to_all
from drafter_client.generation.generation import Generation
from drafter_client.generation.resuming import Run
from drafter_client.http.addresses import VerifierAddress, addresses_of
from drafter_client.http.client import VerifierClient
from drafter_client.http.health import VerifierStatus
from drafter_client.http.outages import Health, Outage, Outages, Stop
from drafter_client.http.text_session import TextSession
from drafter_client.http.verifiers import Verifiers, when_ready
from drafter_client.modes.memory import ModeMemory
from drafter_client.options import VERIFIER, Mode, Options, PairKeywords, PairOptions, corpus_errors_named
from drafter_client.pairing import Paired, Pairing, RunningSession, TextSlots
from drafter_client.statistics import Stats
from drafter_client.text_run import TextRun
from gateway.openai_api.chat.template import Renderer
from specpair.corpus.draft_corpus import CorpusState, DraftCorpora
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.errors import SpecPairError
from specpair.protocol.service_responses import ModelInfo

_log = logging.getLogger("specpair.drafter")
_PINGS = 3  # measurements of the round trip at the start


class Pair:
    """A verifier and the drafter on this machine. Close the pair, or use it in a `with` block.

    It generates up to `texts` texts at a time, each read by a thread of its own.
    """

    def __init__(
        self,
        verifier: str | Sequence[str] = VERIFIER,
        draft: Source | None = DraftModel(),
        **options: Unpack[PairKeywords],
    ) -> None:
        """Wait until the verifier is ready, load the draft model, and check that both use the same vocabulary.

        `verifier`: its URL; or those of several verifiers of one model, with commas between them. So is a name that has
            several network addresses. Each text goes to the fastest that is ready, and on at another one when that
            goes away (docs/several-verifiers.md).
        `draft`: the source of drafts; None: nothing is drafted on this machine.
        `options`: see `PairKeywords`.

        Raises SpecPairError, DrafterError or BackendError if the verifier or the draft model cannot be used.
        """
        self._options = PairOptions(**options)
        self._generations: WeakSet[Generation] = WeakSet()
        self._writing: dict[int, tuple[TextSession, VerifierClient]] = {}  # the texts under way, by their `id`
        self._closed = self._ending = False
        self._renderer = Renderer()  # of chat templates
        patience, before_begin = self._options.patience, self._options.start_patience
        self._outages = Outages(patience, self._options.on_outage, start_patience=before_begin)
        self._earlier = EarlierTexts(self._options.clock)
        with corpus_errors_named():
            self._corpora = DraftCorpora([Path(each) for each in self._options.corpus], corpus_folder())
        addresses = addresses_of(verifier, direct=self._options.transport is None)
        with ExitStack() as stack:
            self._client = VerifierClient(
                *addresses[0],
                api_key=self._options.api_key,
                outages=self._outages,
                trust=self._options.trust,
                transport=self._options.transport,
            )
            for each in (self._client, self._renderer, self._corpora):
                stack.enter_context(closing(each))
            notice = self._options.on_notice or _log.warning
            self._verifiers = when_ready(self._client, addresses, notice, self._outages, self._options.on_wait)
            if self._verifiers is not None:
                stack.enter_context(closing(self._verifiers))
            self._pairing, self._slots = self._paired_with(draft or Undrafted(), stack)
            self._open = stack.pop_all()

    def _paired_with(self, source: Source, stack: ExitStack) -> tuple[Pairing, TextSlots]:
        """Open the source of drafts, and the connections of the texts. `stack` closes them."""
        options, client = self._options, self._client
        drafting = stack.enter_context(source.open(client, options.branches, options.texts))
        # Not `client` itself, which may encode prompts while texts are generated.
        clients = [stack.enter_context(closing(client.another())) for _ in drafting.drafters]
        for each in clients:
            each.connection.connect()
        with corpus_errors_named():
            self._corpora.of(drafting.vocabulary)  # indexed from now on
        link = client.least_round_trip(_PINGS)
        memory = None if options.memory is None else ModeMemory(Path(options.memory))
        pairing = Pairing(client, drafting, link, memory, options.clock, options.policy_class)
        stack.enter_context(closing(pairing))
        return pairing, TextSlots(clients)

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
        """End every text that waits for a lost verifier, now or later. May be called from any thread; returns at
        once."""
        self._outages.stop.set()

    def end_texts(self) -> None:
        """End every text, now and later, and abort its request. May be called from any thread; returns at once."""
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
        """The target model, as the verifier's `/model` describes it. If the model changes, the next text uses the new
        one, or raises VocabularyMismatch if this pair cannot draft for it."""
        return self._pairing.present.info

    @property
    def paired(self) -> Paired:
        """The model that the verifier serves, as last seen, with all state kept for it."""
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
    def verifiers(self) -> list[VerifierStatus]:
        """State of each verifier."""
        if self._verifiers is not None:
            return self._verifiers.states
        outage, present = self.outage, self._pairing.present
        return [VerifierStatus(present.address, "" if outage is None else outage.why, present.selection.link)]

    @property
    def texts_under_way(self) -> list[RunningSession]:
        """The texts that are being generated. May be read from any thread."""
        return [RunningSession(text.session_id, client.address) for text, client in self._writing.copy().values()]

    def connection_to(self, address: VerifierAddress) -> VerifierClient:
        """A client for one of `verifiers` with a connection of its own, which never moves and never waits. The caller
        closes it."""
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
            if self._outages.stop.is_set():  # what an aborted look says is not so
                return
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
        """The target's vocabulary. Encoding may send a request to the verifier. May be used by any thread."""
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
        decoded: bool = True,
    ) -> Generation:
        """Return an iterator of the events of a text that continues `prompt` (text or token ids).

        `identity`: that of the target (`pair.target.identity`) for which the prompt was made; None: the text may be
        that of any target with the vocabulary of the present one. A text under way never goes on with another model's.

        `shown`: a control token whose name is in one of these texts has its name as its characters, as the markers of
        thoughts must be seen; other control tokens have none.

        `decoded`: whether tokens come with their characters; False: for a caller that decodes them.

        Raises BadPrompt, BadOption, ModelChanged, VocabularyMismatch; RuntimeError when the pair is closed. Later
        errors are raised by the iterator, PairBusy with the first event.
        """
        if self._closed:
            raise RuntimeError("this pair is closed")
        paired = self._paired()
        if identity is not None and identity != paired.info.identity:
            raise ModelChanged(f"the verifier serves {paired.info.name} now, and the prompt was made for another model")
        target, vocabulary = paired.info, paired.drafting.vocabulary
        prompt_ids = paired.prompt_ids(prompt)
        options = paired.settled(options)
        stats = Stats(model=target.name, mode=options.mode, sampling=options.described())
        stats.prediction_tokens = None if options.prediction is None else len(options.prediction)
        stats.corpus = None if (corpus := self._corpora.of(vocabulary)) is None else corpus.state
        if len(prompt_ids) + options.max_tokens > target.context_length:
            stats.context = target.context_length
        text = TextSession(prompt_ids, stop=Stop(self._outages.stop))
        writing = self._write(text, options, stats, paired, pinned=identity is not None)
        generation = Generation(writing, vocabulary, text, options, stats, shown, decoded=decoded)
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

    @contextmanager
    def _write(
        self, text: TextSession, options: Options, stats: Stats, paired: Paired, *, pinned: bool
    ) -> Iterator[Run]:
        listeners: list[Listener] = [StatsCounter(stats, text).take]
        with ExitStack() as stack:
            slot = stack.enter_context(self._slots.taken(paired.drafting, text.prompt_ids, options.cache_salt))
            if (on_prompt := self._options.on_prompt) is not None:
                listeners.append(prompt_reader(on_prompt))
            if (observer := self._options.observer) is not None:
                listeners.append(stack.enter_context(observer.run(stats, options.settings())))
            may_draft = options.mode in (Mode.REMOTE, Mode.AUTO) and Mode.REMOTE in paired.modes()
            make = paired.drafting.drafters[slot.number]
            drafter = make(options, text.prompt_ids) if may_draft else None
            if drafter is not None and paired.drafting.warm:
                text.read = paired.drafting.warm[slot.number].begun
            slot.client.move_to(paired.address)
            self._writing[id(text)] = text, slot.client
            if self._ending:
                text.stop.set()
            stack.callback(self._writing.pop, id(text))
            if (corpus := self._corpora.of(paired.drafting.vocabulary)) is not None:
                stack.callback(lambda: setattr(stats, "corpus", corpus.state))
            run = TextRun(
                client=slot.client,
                drafter=drafter,
                paired=paired,
                pairing=self._pairing,
                pinned=pinned,
                outages=self._outages,
                verifiers=self._verifiers,
                text=text,
                options=options,
                tell=to_all(*listeners),
                clock=self._options.clock,
                corpora=self._corpora,
                earlier=self._earlier,
            )
            yield stack.enter_context(run.tokens())

    def _paired(self) -> Paired:
        """That of the verifier which a new text goes to."""
        if self._verifiers is None:
            return self._pairing.checked()
        return self._at(self._verifiers, self._verifiers.chosen())

    def _at(self, verifiers: Verifiers, address: VerifierAddress) -> Paired:
        """That of the verifier at `address`, of several. If all have changed to another model, that is taken over."""
        changed = verifiers.changed(address)
        if changed is None:
            return self._pairing.at(address, *verifiers.of(address))
        taken = self._pairing.take_over(self._pairing.present, address=changed)
        verifiers.adopt(taken.info)
        return taken
