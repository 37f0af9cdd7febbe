"""Server-side drafting (mode fused): texts that the server both drafts and verifies.

They are written in rounds, all together (`verifier_server.generation.rounds`). A text with a draft length of its own,
with drawn draft tokens, or without a draft model is written by itself, by the run that a drafter has. The engine judges
all these drafts in the same passes as those of clients. As many texts run at once as the draft model has slots; the
others wait. Clients take turns; the texts of one client run in order of arrival.
"""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from threading import Lock

from specpair.corpus.draft_corpus import DraftCorpus
from specpair.corpus.earlier_texts import EarlierTexts
from specpair.fairness import FairTurns
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT
from specpair.speculation.policy.experience import Experience
from verifier_server.engine.arrived_drafts import OnAnswer
from verifier_server.engine.interface import TokenEngine
from verifier_server.generation.draft_model import SharedDraftModel
from verifier_server.generation.fused_text import DraftCounts, FusedText
from verifier_server.generation.pass_costs import PassCosts
from verifier_server.generation.round_policy import RoundPolicy
from verifier_server.generation.round_thread import RoundThread
from verifier_server.generation.rounds import Rounds
from verifier_server.sessions import Session


class FairPool:
    """Threads that do work of clients by turns, that of one client in order of arrival. Thread-safe."""

    def __init__(self, threads: int, name: str = "fused") -> None:
        """`name`: of the threads."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()  # guards the next two
        self._waiting: list[tuple[Hashable, Callable[[], None]]] = []
        self._turns = FairTurns[tuple[Hashable, Callable[[], None]]](itemgetter(0))

    def submit(self, client: Hashable, do: Callable[[], None]) -> None:
        """Have a thread call `do` in the turn of `client`."""
        work = client, do
        with self._lock:
            self._turns.arrived(work)
            self._waiting.append(work)
        self._threads.submit(self._next)

    def shutdown(self) -> None:
        """Wait until all work is done, and end the threads."""
        self._threads.shutdown()

    def _next(self) -> None:
        with self._lock:
            _, do = self._turns.pop_next(self._waiting)
        do()


class ServerDrafting:
    """Generates texts with a draft model, or by lookup. Thread-safe."""

    def __init__(
        self,
        draft: SharedDraftModel,
        pass_times: Sequence[float],
        clock: Callable[[], float],
        deliver: Callable[[], None],
        corpus: DraftCorpus | None = None,
        earlier: EarlierTexts | None = None,
    ) -> None:
        """`pass_times`: seconds of the target's passes over 1, 2, … tokens.
        `clock`: in seconds.
        `corpus`: files from which draft tokens are looked up, which `stop` closes.
        `earlier`: keeps texts for later ones; None: nothing is kept of them.

        `deliver` is called after each answer of a text, or those of a pass.
        """
        self.draft, self.corpus = draft, corpus
        self._pass_times, self._clock, self._deliver = pass_times, clock, deliver
        self._experience, self._earlier = Experience(), earlier
        self._threads = FairPool(draft.slots)
        self._rounds: RoundThread | None = None  # made for the first text that is written in rounds

    def start(
        self,
        engine: TokenEngine,
        session: Session,
        length: int | None,
        counts: DraftCounts,
        position: int,
        on_answer: OnAnswer,
        prediction: Sequence[int] | None = None,
    ) -> Callable[[], None]:
        """Generate a text when its turn comes; `on_answer` gets each answer. Returns a function that cancels the text
        for good: then another request can generate in the session.

        `length`: the draft length; None: it is chosen, for all texts together.
        `position`: where the first answer begins.
        `prediction`: token ids that the text may have; None: there is none.
        """
        in_rounds = length is None and not self.draft.looks_up and session.strategy in DRAFTER_INVARIANT
        if in_rounds and self._rounds is None:
            policy = RoundPolicy(PassCosts(self._pass_times, self.draft.step_times), not self.draft.shares_device)
            self._rounds = RoundThread(Rounds(policy), self._clock, self._deliver)
        text = FusedText(
            engine=engine,
            draft=self.draft,
            session=session,
            length=length,
            prediction=prediction,
            clock=self._clock,
            counts=counts,
            began=self._clock(),
            position=position,
            corpus=self.corpus,
            earlier=self._earlier,
            on_answer=on_answer,
            deliver=self._deliver,
            rounds=self._rounds if in_rounds else None,
        )

        def generate() -> None:
            with self._experience.text(session.spec, self._pass_times, together=in_rounds) as estimates:
                text.run(estimates)

        self._threads.submit(session.client, generate)
        return text.cancel

    def stop(self) -> None:
        """Wait for the threads, and free the draft model. Stop the engine before, so that their requests fail."""
        self._threads.shutdown()
        if self._rounds is not None:
            self._rounds.stop()
        self.draft.close()
        if self.corpus is not None:
            self.corpus.close()
