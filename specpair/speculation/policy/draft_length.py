"""Decides the draft length: the length with the most tokens per second, or the user's fixed length.

A round with k draft tokens yields 1 + s_1 + … + s_k tokens on average, where s_i is the chance that the first i draft
tokens are accepted. Tokens per second over all rounds are greatest when every round maximises (tokens - rate x time),
with `rate` the best rate itself (Dinkelbach's rule for ratios). So one more draft token pays exactly when

    chance of its acceptance  >  rate x (time that it keeps the verifier waiting + time that its verification adds).

This is decided token by token, from the drafter's confidence, corrected by how often draft tokens of such confidence
were accepted before. While the verifier is busy anyway, drafting does not keep it waiting. A plan says whether the next
request should wait for further draft tokens, and for how many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.tree import TreeNode
from specpair.speculation.policy.schedule import NOT_SOON, Mechanisms, RejectionPolicy, best_rejection_policy
from specpair.speculation.policy.timing import NARROW, LatencyModel
from specpair.speculation.policy.verifier_timeline import PassStart

# Share of the rate that overlap must gain. A smaller gain is not worth the energy, nor, where both ends run on one
# machine, the time that it takes from the verifier.
TRIFLE = 0.08
MAX_AUTO = NARROW - 1  # draft tokens; a longer draft is hardly ever fully accepted, and delays other sessions
_LONGEST = 96  # most draft tokens in a request, those included that will be committed before it is judged
_ROUNDING = 1e-6  # tokens; a plan must gain more, or rounding would have it draft where nothing is gained
_TILE = 4  # draft tokens that a pass may take as one: an engine's kernels take so many rows at once
_FIRST_CAP = 6  # most draft tokens in a request at first; doubled when the best length reaches it


@dataclass(frozen=True, slots=True)
class Prospects:
    """The best rate that the present estimates allow, and the settings that reach it."""

    rate: float  # the best tokens per second
    price: float  # tokens that a second of the verifier's time is worth
    length: int  # draft length at which `rate` is reached
    unhurried: int  # the best draft length if drafting took no time
    alongside: bool  # whether a draft sent while the verifier self-continues gains more than TRIFLE tokens
    rejection_policy: RejectionPolicy  # what the verifier should do after a rejection
    outpaced: bool  # whether the verifier decodes by itself as fast as the drafter drafts, so that no draft step pays
    overlap: bool  # whether drafting while the verifier works gains more than the share TRIFLE of the rate


class DraftPlan(NamedTuple):
    """The draft tokens of the next verify request, and whether to wait for them."""

    more: int  # draft tokens to wait for before it is sent
    skip: int  # draft tokens of the path that, if accepted, are committed before the verifier pass for it starts


class DraftLength:
    """The draft length of one text: fixed by the user, or chosen again whenever the estimates change (`update`)."""

    def __init__(self, fixed: int | None, max_drafts: int) -> None:
        """`fixed`: the user's draft length; None: automatic.
        `max_drafts`: most draft tokens in one request.
        """
        self.fixed, self._max_drafts, self._auto_cap = fixed, max_drafts, _FIRST_CAP

    def update(
        self, latencies: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
    ) -> None:
        """Compute the prospects anew, and the automatic draft length from them. Arguments as for `prospects`."""
        self._latencies, self.prospects = latencies, prospects(latencies, chances, mechanisms, next_draft_ready)
        if self.prospects.length >= self._auto_cap:
            self._auto_cap = min(2 * self._auto_cap, MAX_AUTO)

    @property
    def best(self) -> int:
        """The fixed draft length, or the length that pays best at present; 0: no draft pays."""
        return self.prospects.length if self.fixed is None else self.fixed

    @property
    def ahead_pays(self) -> bool:
        """Whether drafting while the verifier works pays."""
        return self.best > 0 or (self.fixed is None and self.prospects.alongside)

    def cap(self, path: Sequence[TreeNode]) -> int:
        """Most draft tokens that the verifier should judge for one request. Those of `path` that the grammar alone
        lets stand there do not count: no model drafts them."""
        if self.fixed is not None:
            return min(self.fixed, self._max_drafts)
        return min(self._auto_cap, self._max_drafts) + sum(forced(path))

    @property
    def reach(self) -> int:
        """Most draft tokens that the verifier should judge for one request whose tokens beyond `cap` are looked up.

        Their chances alone limit them: they take no time to draft, and a good prediction is right for a long time.
        """
        return min(_LONGEST if self.fixed is None else self.fixed, self._max_drafts)

    def room(self, left: int) -> int:
        """Most draft tokens in a request when the text may have `left` more tokens; the last comes from the target."""
        return min(left - 1, self._max_drafts, _LONGEST)

    def _price(self, path: Sequence[TreeNode], chances: Sequence[float], since: int) -> float:
        """Tokens that a second of the verifier's time is worth. `chances` and `since` as for `worth_sending`.

        Where the path has tokens of the client's prediction, further paths will be like it. Then the rate that they
        reach is the price, if it is above that of the draft model's tokens.
        """
        if all(node.source is not DraftSource.PREDICTION for node in path):
            return self.prospects.price
        tokens = accumulate(chances[since : since + self.reach + 1])
        passes = (self._latencies.cost(drafts) + self._latencies.queue for drafts in range(self.reach + 1))
        reached = max((each / taken for each, taken in zip(tokens, passes, strict=False)), default=0.0)
        return max(self.prospects.price, reached / chances[min(since, len(chances) - 1)])

    def to_send(
        self, path: Sequence[TreeNode], chances: Sequence[float], since: int, *, always_send: bool = False
    ) -> int:
        """The number of draft tokens of a path to send. `chances` and `since` as for `worth_sending`.

        `always_send`: all up to the last that was drawn.
        """
        if self.fixed is not None:
            most = min(len(path), since + self.cap(()))
            # A drafter without a token to propose gives one of confidence 0.
            return next((at for at in range(since, most) if not path[at].confidence), most)
        price = self._price(path, chances, since)
        count = worth_sending(self._latencies, chances, since, self.reach, price, forced(path))
        return max(count, *(at for at, node in enumerate(path, 1) if always_send and node.probs), 0)

    def side_count(self, gains: Sequence[float], fresh: int, given: float) -> int:
        """The number of draft tokens beside a path to send.

        `gains`: chance of each that the text passes through it, the greatest first.
        `fresh`: draft tokens of the path that the verifier judges with them, which it does with the chance `given`.
        """
        price, plain = self.prospects.price * given, self._latencies.cost(fresh)
        best, best_value, value = 0, 0.0, 0.0
        for count, gain in enumerate(gains, 1):
            value += gain
            worth = value - price * (self._latencies.cost(fresh + count) - plain)
            if worth > best_value:
                best, best_value = count, worth
            elif count - best > _TILE:
                break
        return best

    def plan(
        self,
        starts: Sequence[PassStart],
        path: Sequence[TreeNode],
        chances: Sequence[float],
        *,
        known: int,
        room: int,
        waited_for: bool,
    ) -> DraftPlan | None:
        """The plan for the next verify request; None where no draft pays.

        A draft token gains its chance of acceptance, less the cost of verifying it. Waiting for it costs the tokens
        that the verifier would have produced meanwhile.

        `starts[n]`: when the verifier pass would start for a request that leaves with n draft tokens behind `path`.
        `chances[k]`: chance that the first k draft tokens of the path, and those behind it, are accepted.
        `known`: tokens of the committed text.
        `room`: most draft tokens in the request.
        `waited_for`: the verifier idles until a draft comes.
        """
        made, since, prospects = len(path), starts[0].position - known, self.prospects
        cap = self.cap(path[since:])
        if self.fixed is not None:
            missing = min(cap, room - since) - (made - since)
            if cap and missing > 0 and len(starts) > 1:
                return DraftPlan(min(missing, len(starts) - 1), since)
            return DraftPlan(0, since) if made > since or (made == since and waited_for) else None
        price, determined, latencies = self._price(path, chances, since), forced(path), self._latencies
        # Share of its gain that a draft token loses if it is left out of this request. It goes into the next one,
        # unless that is full without it.
        loss = 1.0
        if prospects.overlap:
            loss = min(1.0, latencies.verify(0) / (latencies.draft() * max(1, prospects.unhurried)))
        best: DraftPlan | None = None
        best_value, at_once = 0.0, None
        worth: dict[int, list[float]] = {}
        for more, start in enumerate(starts):
            skip = start.position - known
            fresh = made + more - skip
            if more and (fresh > cap or (best_value > 0.0 and skip > since)):
                break
            if fresh < 0 or (not fresh and not waited_for):
                continue
            if skip not in worth:
                worth[skip] = worths(latencies, chances, skip, self.reach, price, determined)
            gain = worth[skip][min(fresh, self.reach)]  # draft tokens beyond `reach` are not sent
            at_once = gain if at_once is None else at_once
            waiting = prospects.rate * (start.at - starts[0].at) - (skip - since)
            value = at_once + loss * (gain - at_once) - chances[min(since, made)] * waiting
            if value > best_value + _ROUNDING or (best is None and waited_for):
                best, best_value = DraftPlan(more, skip), value
        return best


def forced(path: Sequence[TreeNode]) -> list[bool]:
    """For each draft token of `path`, whether the grammar allows this token only."""
    return [node.source is DraftSource.GRAMMAR for node in path]


def prospects(
    latencies: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
) -> Prospects:
    """The best rate over all draft lengths from 0 to MAX_AUTO, with the settings that reach this rate.

    `chances[k]`: chance that the first k draft tokens are accepted, for k up to MAX_AUTO + 1; `chances[0]` is 1.
    `next_draft_ready`: share of rejections, 0 to 1, after which a draft is ready at once.
    """
    draft, link = latencies.draft(), latencies.link
    best = unhurried = (0.0, 0)
    tokens = in_turn = unbroken = 0.0
    for k in range(MAX_AUTO + 1):
        tokens += chances[k]
        busy = latencies.cost(k) + latencies.queue
        in_turn, unbroken = max(in_turn, tokens / (busy + link + k * draft)), max(unbroken, tokens / busy)
        if mechanisms.overlap:
            predicted = chances[k + 1]  # the bonus token was predicted, too: the next draft is there
            busy += (1.0 - predicted) * (link + (1.0 - next_draft_ready) * k * draft)
            waiting = (k + 1) * draft - latencies.verify(k)  # for a drafter slower than the verifier
            if mechanisms.in_flight == 1:
                waiting = max(waiting, link)
            cycle = busy + predicted * max(0.0, waiting)
        else:
            busy += link
            cycle = busy + k * draft
        best = max(best, (tokens / cycle, k))
        unhurried = max(unhurried, (tokens / busy, k))
    rate, length = best
    if mechanisms.self_continue:
        step, own = latencies.by_itself()
        own_rate = own / max(latencies.cost(0), step)
        if own > 1.0 and own_rate > rate:  # with its head, the verifier is faster than with drafts from here
            length = 0
        rate = max(rate, own_rate)
    overlap = mechanisms.overlap and (not latencies.draft_known or unbroken > (1.0 + TRIFLE) * in_turn)
    # While one session waits for its draft, passes go on for the others: only the pass itself costs them time.
    price = max(rate, unbroken) if latencies.is_shared else rate
    outpaced = mechanisms.self_continue and latencies.draft_known and draft >= latencies.verify(0)
    # The self-continuation step and its token come in any case, so only what draft tokens add to it counts.
    worth = worths(latencies, chances, 1, MAX_AUTO, price)[-1]
    alongside = mechanisms.self_continue and not outpaced and worth > TRIFLE
    if length:
        # On the same cores, self-continuation would slow the draft steps that it does not wait for.
        beside = mechanisms.self_continue and mechanisms.overlap
        after_rejection = best_rejection_policy(latencies, chances, rate, next_draft_ready, may_self_continue=beside)
    else:
        after_rejection = RejectionPolicy(mechanisms.self_continue, NOT_SOON)
    return Prospects(
        rate=rate,
        price=price,
        length=length,
        unhurried=unhurried[1],
        alongside=alongside,
        rejection_policy=after_rejection,
        outpaced=outpaced,
        overlap=overlap,
    )


def worths(
    latencies: LatencyModel,
    chances: Sequence[float],
    since: int,
    most: int,
    price: float,
    forced: Sequence[bool] = (),
) -> list[float]:
    """The value of sending at most 0, 1, 2, … fresh draft tokens: tokens gained over a verifier pass without any.

    Arguments as for `worth_sending`.
    """
    given, plain = price * chances[min(since, len(chances) - 1)], latencies.cost(0)
    runs = [0]  # item k: how many forced tokens follow the first k draft tokens one after the other
    for determined in reversed(forced):
        runs.append(runs[-1] + 1 if determined else 0)
    runs.reverse()
    gain, each = 0.0, [0.0]
    for drafts in range(1, min(len(chances) - 1 - since, most) + 1):
        at = since + drafts
        chance, behind = chances[at], runs[at] if at < len(runs) else 0
        is_forced = at <= len(forced) and forced[at - 1]
        gain += chance * (not behind if is_forced else max(1, behind))
        # The next pass reads those of the run behind that this one does not, as it reads one token in any case.
        later = chance * price * (latencies.cost(drafts + behind - 1) - latencies.cost(drafts)) if behind else 0.0
        each.append(gain - later - given * (latencies.cost(drafts) - plain))
    return list(accumulate(each, max))


def worth_sending(
    latencies: LatencyModel,
    chances: Sequence[float],
    since: int,
    most: int,
    price: float,
    forced: Sequence[bool] = (),
) -> int:
    """The number of draft tokens of a path that is most worth sending.

    `chances[k]`: chance that the first k draft tokens of the path are accepted. The first `since` of them will be
        committed when the verifier pass starts; those beyond are fresh, and at most `most` of them are judged.
    `price`: tokens that a second of the verifier's time is worth.
    `forced`: for each draft token of the path, whether it alone can stand there; those beyond are not. The verifier
        commits such a token as soon as the one before it is, so judging it gains no more than the token behind it.
    """
    each = worths(latencies, chances, since, most, price, forced)
    return since + each.index(each[-1])
