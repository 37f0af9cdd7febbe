"""State that belongs to the verifier's model, replaced as a whole when the model changes; and slots for a pair's texts.

Of several verifiers of one model, each has estimates of its own; all share the drafters.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from drafter_client.draft_sources import OpenedSource
from drafter_client.errors import BadOption, BadPrompt, PairBusy, VocabularyMismatch
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.modes.auto import LatencyProbe, ModeSelection
from drafter_client.modes.memory import ModeMemory
from drafter_client.options import Mode, Options, foreign_id
from specpair.drafters.warm_engine import warmest
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.service_responses import ModelInfo, continues
from specpair.speculation.policy.experience import DraftingPolicy, Experience

_MISSING = {
    Mode.FUSED: "this verifier has no draft model. Start it with VERIFIER_DRAFT_MODEL (or with "
    "VERIFIER_DRAFT_BACKEND=ngram), give a prediction, or choose another mode",
    Mode.REMOTE: "this pair has no drafter: make it with a draft source, or choose the mode fused or target",
}


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """One model of a verifier, the drafters for it, and what texts taught about both."""

    address: VerifierAddress  # of the verifier
    drafting: OpenedSource
    # Modes differ in other ways where texts are predicted, and such rates say nothing for other texts.
    selections: dict[bool, tuple[ModeSelection, LatencyProbe]]  # by whether a text has a prediction
    experience: Experience
    lookup_experience: Experience  # of texts, or parts of them, that are drafted by lookup alone

    @property
    def info(self) -> ModelInfo:
        return self.drafting.info

    @property
    def selection(self) -> ModeSelection:
        """Mode selection without a prediction."""
        return self.selections[False][0]

    def prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """The token ids of a prompt (text or token ids). Raises BadPrompt if it is empty, or holds other ids."""
        ids = self.drafting.vocabulary.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not ids:  # some vocabularies have no begin token and drop spaces: a prompt of spaces becomes empty
            raise BadPrompt("the model reads the prompt as empty: give at least one character that is no space")
        if (wrong := foreign_id(ids, self.info.vocabulary.size)) is not None:
            raise BadPrompt(f"the prompt holds {wrong}")
        return ids

    def settled(self, options: Options) -> Options:
        """The options of one text: with a seed, the token ids of a prediction, and an available mode. Raises
        BadOption."""
        options = _with_prediction_ids(options.settled(), self.info, self.drafting.vocabulary)
        modes = self.modes(predicted=options.predicted)
        if (mode := options.settled_mode(modes)) is not options.mode:
            return options.in_mode(mode)
        if mode not in (*modes, Mode.AUTO):
            raise BadOption(f"mode {mode}: {_MISSING.get(mode, 'the verifier does not offer it')}")
        return options

    def modes(self, *, predicted: bool = False) -> list[Mode]:
        """The modes, without `auto`, for a text. `predicted`: whether it has a prediction."""
        return _modes(self.drafting, predicted)

    def without_lost_draft_model(self, mode: Mode, *, predicted: bool) -> Mode:
        """`mode`; but `target` for `fused`, where the verifier has come back without a draft model."""
        return Mode.TARGET if mode is Mode.FUSED and mode not in self.modes(predicted=predicted) else mode


class Pairing:
    """The present `Paired` of one pair. May be used from any thread."""

    def __init__(
        self,
        client: VerifierClient,
        drafting: OpenedSource,
        link: float,
        memory: ModeMemory | None,
        clock: Callable[[], float],
        policy: type[DraftingPolicy] = DraftingPolicy,
    ) -> None:
        """`client`: further connections are made from it.
        `link`: the round trip (s).
        """
        self._client, self._memory, self._clock, self._policy = client, memory, clock, policy
        self._open = ExitStack()
        self._taking_over = threading.Lock()
        self.refusal: VocabularyMismatch | None = None  # why what the verifier serves now cannot be paired with
        # By address and identity: replicas behind one address answer by turns, perhaps.
        self._replicas: dict[tuple[VerifierAddress, str], Paired] = {}
        self.present = self._paired(client.address, drafting, link)  # that of the last text
        self._at = {client.address: self.present}  # of the present model

    def close(self) -> None:
        self._open.close()

    def checked(self) -> Paired:
        """The present one. If the verifier was seen with a model that does not pair, ask it again.

        Raises VocabularyMismatch while it still serves that.
        """
        return self.present if self.refusal is None else self.take_over(self.present)

    def at(self, address: VerifierAddress, info: ModelInfo | None, link: float) -> Paired:
        """That of the verifier at `address`, one of several, which serves the present model. `info`: what it is known
        to serve; None: nothing is known. `link`: the round trip (s)."""
        with self._taking_over:
            found = self._at.get(address)
            if info is not None and (found is None or found.info.identity != info.identity):
                if not continues(info.identity, self.present.info.identity):
                    return self.present  # what is sent there shows that it serves another model
                found = self._replicas.get((address, info.identity))
                if found is None:
                    found = self._paired(address, replace(self.present.drafting, info=info), link)
                self._at[address] = found
            self.refusal = None
            self.present = found or self.present
            return self.present

    def take_over(
        self,
        seen: Paired,
        *,
        address: VerifierAddress | None = None,
        session_id: str | None = None,
        begun: bool = False,
    ) -> Paired:
        """Ask the verifier what it serves now, and return the present one, which is `seen` if that has not changed.

        `address`: of the verifier to ask; None: that of `seen`.
        `session_id`: of the text that noticed it: of several verifiers behind one address, its own is asked.
        `begun`: whether a text was begun by the model of `seen`, which an error then says.

        Nothing that was learnt or fetched is kept for another model. Raises VocabularyMismatch if that does not pair,
        and what the client raises.
        """
        with self._taking_over:
            asked = address or seen.address
            several = self._client.others is not None
            # Behind one address may be several replicas: then what another text was told says nothing for this one.
            if several and self._at.get(seen.address) is not seen:  # another text has just done it
                return self._at.get(asked, self.present)
            client = self._client.another(asked)
            with ExitStack() as unless_kept:
                unless_kept.callback(client.close)
                with closing(client.another(alone=several)) as asking:
                    info = asking.model(session_id=session_id)
                if info.identity != (seen if several else self.present).info.identity:
                    same = continues(info.identity, seen.info.identity)
                    if not same:
                        self._replicas.clear()
                    found = self._replicas.get((asked, info.identity))
                    if found is None:
                        if several and same:  # what drafts is shared with the other verifiers of the model
                            drafting = replace(seen.drafting, info=info)
                        else:
                            drafting = self._anew(seen, client, info, begun)
                        found = self._paired(asked, drafting, seen.selection.link)
                        self._open.enter_context(unless_kept.pop_all())
                    self.present = found
                    self._at = {**(self._at if several and same else {}), asked: found}
            self.refusal = None
            return self._at.get(asked, self.present)

    def _anew(self, seen: Paired, client: VerifierClient, info: ModelInfo, begun: bool) -> OpenedSource:
        """What drafts for what the verifier of `client` serves now. The arguments, and VocabularyMismatch: as in
        `take_over`."""
        try:
            return seen.drafting.anew(client, info)
        except VocabularyMismatch as error:
            now, before = f"the verifier at {client.url} serves {info.name} now", seen.info.name
            self.refusal = VocabularyMismatch(f"{now}, in place of {before}: {error}")
            if begun:
                raise VocabularyMismatch(f"{now}, and the text was begun by {before}: {error}") from None
            raise self.refusal from None

    def _paired(self, address: VerifierAddress, drafting: OpenedSource, link: float) -> Paired:
        selections = {}
        for predicted in (False, True):
            selection = ModeSelection(
                _modes(drafting, predicted),
                *(drafting.info, drafting.name, link, self._clock()),
                memory=None if predicted else self._memory,
                predicted=predicted,
                times=drafting.times,
                shares_cores=drafting.shares_cores,
                lookups=_lookups(drafting),
            )
            probe = LatencyProbe(self._client.another(address), selection, self._clock)
            selections[predicted] = selection, self._open.enter_context(closing(probe))
        made = self._replicas[address, drafting.info.identity] = Paired(
            address, drafting, selections, Experience(self._policy), Experience(self._policy)
        )
        return made


def _modes(drafting: OpenedSource, predicted: bool) -> list[Mode]:
    local = [] if drafting.name is None else [Mode.REMOTE]
    there = [*drafting.info.modes, *([Mode.FUSED] if predicted else [])]
    return local + [mode for mode in (Mode.FUSED, Mode.TARGET) if mode in there]


def _lookups(drafting: OpenedSource) -> Literal["never", "also", "only"]:
    """Whether texts may be drafted by lookup alone: there is no draft model, or `remote` with it is slower than the
    target alone where it does not pay, as its steps take the verifier's cores, or as the verifier waits for them."""
    slower = drafting.looks_up or drafting.shares_cores or not drafting.info.self_continue
    if drafting.name is None or not slower or Mode.TARGET not in drafting.info.modes:
        return "never"
    return "only" if drafting.looks_up else "also"


class RunningSession(NamedTuple):
    session_id: str
    address: VerifierAddress  # of its verifier


class TextSlot(NamedTuple):
    """Generates one text at a time: a connection, and a drafter of the draft source, by its number."""

    client: VerifierClient
    number: int


class TextSlots:
    """The slots for the texts of a pair that are free. May be used from any thread."""

    def __init__(self, clients: Iterable[VerifierClient]) -> None:
        self._free = [TextSlot(client, number) for number, client in enumerate(clients)]
        self._all = len(self._free)
        self._choosing = threading.Lock()  # guards those that are free

    @contextmanager
    def taken(self, drafting: OpenedSource, prompt_ids: Sequence[int], cache_salt: str) -> Iterator[TextSlot]:
        """A context with a free slot: the one whose KV cache has most of the prompt. Raises
        PairBusy."""
        with self._choosing:
            if not self._free:
                raise PairBusy(
                    f"this pair writes {self._all} texts at a time: end one, or make the pair with more (texts=…)"
                )
            slot = self._free[0]
            if drafting.warm:
                engines = [(each, drafting.warm[each.number]) for each in self._free]
                slot = warmest(engines, prompt_ids, cache_salt)
            self._free.remove(slot)
        try:
            yield slot
        finally:
            with self._choosing:
                self._free.append(slot)


def _with_prediction_ids(options: Options, target: ModelInfo, vocabulary: Vocabulary) -> Options:
    """These options with the token ids of their prediction, if they have one.

    `vocabulary`: the target's.

    Raises BadOption, and what encoding a text raises.
    """
    given = options.prediction
    if isinstance(given, str):
        return replace(options, prediction=vocabulary.encode(given, add_begin=False))
    if given is not None and (wrong := foreign_id(given, target.vocabulary.size)) is not None:
        raise BadOption(f"the prediction holds {wrong}")
    return options
