"""What things take, measured as they happen: a draft, a pass of the verifier, the way there and back. Milliseconds."""

from collections import deque
from collections.abc import Sequence

from speculation.policy.estimates import Curve, Mean

_LINK_WINDOW = 24  # exchanges
_LINK_QUANTILE = 0.25  # low: Wi-Fi that saves power, and our own late looks, make spikes upwards only
_WIDER_GUESS = 0.5  # share of a draft's time that another row is thought to take, until it is measured
_SHARED = 1.5  # sessions in a pass from which on drafts are priced by what they cost all of them
_LEAST = 1e-3  # ms; nothing takes no time
_EARLY, _SPREADS = 2.0, 2.0  # ms, and mean errors of what passes are thought to take, that a guess is to be early


class LatencyModel:
    """Running estimates of one drafter, one link and one verifier."""

    def __init__(self, pass_ms: Sequence[float] = ()) -> None:
        """`pass_ms`: what the verifier says a pass over 1, 2, … tokens takes it."""
        self._draft = Mean(0.9)
        self._wider = Mean(0.9)
        self._verify, self._said = Curve(pass_ms), Curve(pass_ms)
        if pass_ms:  # believed until there is a pass of which more is known
            self._said.learn(0, pass_ms[0])
        self._seen = False
        self._links: deque[float] = deque(maxlen=_LINK_WINDOW)
        self._queue = Mean(0.8)
        self._error = Mean(0.9)
        self._sessions, self._judged = Mean(0.8), Mean(0.9)
        self.link = 0.0  # round trip without the verifier's own times
        self._verify_ms: list[float] = []  # by drafts, until the next is seen

    @property
    def queue(self) -> float:
        """How long a guess that finds its session idle waits for other sessions' pass to end."""
        return self._queue.value

    @property
    def margin(self) -> float:
        """How much earlier than thought the verifier may be through with a pass: never more than half a step."""
        return min(_EARLY + _SPREADS * self._error.value, self.verify(0) / 2)

    @property
    def draft_known(self) -> bool:
        """Whether a draft step was timed yet."""
        return self._draft.weight > 0.0

    def draft(self, rows: int = 1) -> float:
        """One step of the drafter over so many branches."""
        wider = self._wider.value if self._wider.weight else _WIDER_GUESS * self._draft.value
        return max(_LEAST, self._draft.value + (rows - 1) * wider)

    def verify(self, drafts: int) -> float:
        """The verifier's pass that judges so many drafts."""
        while drafts >= len(self._verify_ms):
            curve = self._verify if self._seen else self._said
            self._verify_ms.append(max(_LEAST, curve.at(len(self._verify_ms))))
        return self._verify_ms[drafts]

    @property
    def is_shared(self) -> bool:
        """Whether other sessions are part of our passes."""
        return self._sessions.value >= _SHARED

    def cost(self, drafts: int) -> float:
        """What a pass would take if all sessions that share it had so many drafts: what a draft costs, not me, but us.

        Where sessions share passes, each draft holds up all of them. If every drafter counted only its own delay, all
        would send so many that each came off worse.
        """
        sessions, usual = self._sessions.value, self._judged.value
        if not self.is_shared:
            return self.verify(drafts)
        # By what the verifier has said: what we see of our own passes has the others' drafts in it, too.
        few = int(usual)
        said = self._said.at(few) + (usual - few) * (self._said.at(few + 1) - self._said.at(few))
        return max(0.1 * self.verify(0), self.verify(round(usual)) + sessions * (self._said.at(drafts) - said))

    def drafted(self, rows: int, milliseconds: float) -> None:
        """Take in a step that read one token for each of `rows` branches."""
        if rows > 1 and self._draft.weight:
            self._wider.learn(max(0.0, milliseconds - self._draft.value) / (rows - 1))
        else:
            self._draft.learn(milliseconds / (1.0 + (rows - 1) * _WIDER_GUESS))

    def exchanged(self, milliseconds: float, queue_ms: float, forward_ms: float) -> None:
        """Take in a request and its answer: all of it, and what of it the verifier says it spent."""
        self._links.append(max(0.0, milliseconds - queue_ms - forward_ms))
        self.link = sorted(self._links)[int(_LINK_QUANTILE * len(self._links))]

    def verified(self, judged: int, forward_ms: float) -> None:
        """Take in a pass."""
        self._error.learn(abs(forward_ms - self.verify(judged)) if self._seen else 0.0)
        self._verify.learn(judged, forward_ms)
        self._verify_ms, self._seen = [], True

    def shared(self, judged: int, sessions: int | None = None) -> None:
        """Take in a pass that judged so many drafts of ours, and how many sessions shared it, where that is known."""
        self._judged.learn(judged)
        if sessions is not None:
            self._sessions.learn(sessions)

    def queued(self, milliseconds: float) -> None:
        """Take in how long a guess waited that found its session idle."""
        self._queue.learn(milliseconds)
