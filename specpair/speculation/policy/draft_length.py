"""Decide how long drafts are: the length that maximises tokens per second, or the one that the user fixed.

A round with k draft tokens yields 1 + s_1 + … + s_k tokens on average, where s_i is the chance that the first i draft
tokens are accepted. Tokens per second over all rounds are greatest when every round maximises (tokens - rate x time),
with `rate` the best rate itself (Dinkelbach's rule for ratios). So one more draft token pays exactly when

    chance of its acceptance  >  rate x (time that it keeps the verifier waiting + time that its verification adds).

This is decided token by token, from the drafter's confidence, corrected by how often draft tokens of such confidence
were accepted before. While the verifier is busy anyway, drafting does not keep it waiting. A plan says whether the next
request should wait for further draft tokens, and for how many.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

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
    """What to put into the next verify request."""

    more: int  # draft tokens to wait for before it is sent
    skip: int  # draft tokens of the path that, if accepted, are committed before the verifier pass for it starts


class DraftLength:
    """The draft length of one text: fixed by the user, or chosen again whenever the estimates change."""

    def __init__(self, fixed: int | None, max_drafts: int) -> None:
        """`fixed`: the user's draft length; None: automatic.
        `max_drafts`: most draft tokens in one request.
        """
        self.fixed, self._max_drafts, self._auto_cap = fixed, max_drafts, _FIRST_CAP

    def update(
        self, latencies: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
    ) -> None:
        """Compute the prospects anew, and the automatic draft length from them. Arguments as for `prospects`."""
        self.prospects = prospects(latencies, chances, mechanisms, next_draft_ready)
        if self.prospects.length >= self._auto_cap:
            self._auto_cap = min(2 * self._auto_cap, MAX_AUTO)

    @property
    def best(self) -> int:
        """The fixed draft length, or the one that pays best at present; 0: no draft pays."""
        return self.prospects.length if self.fixed is None else self.fixed

    @property
    def ahead_pays(self) -> bool:
        """Whether it pays to draft while the verifier is at work."""
        return self.best > 0 or (self.fixed is None and self.prospects.alongside)

    @property
    def cap(self) -> int:
        """Most draft tokens that the verifier should judge for one request."""
        return min(self._auto_cap if self.fixed is None else self.fixed, self._max_drafts)

    @property
    def reach(self) -> int:
        """Most draft tokens that the verifier should judge for one request whose tokens beyond `cap` are looked up.

        Their chances alone limit them: they take no time to draft, and a good prediction is right for a long time.
        """
        return self.cap if self.fixed is not None else min(_LONGEST, self._max_drafts)

    def room(self, left: int) -> int:
        """Most draft tokens in a request when the text may have `left` more tokens; the last comes from the target."""
        return min(left - 1, self._max_drafts, _LONGEST)

    def price(self, latencies: LatencyModel, chances: Sequence[float], since: int, *, predicted: bool) -> float:
        """Tokens that a second of the verifier's time is worth. `chances` and `since` as for `worth_sending`.

        `predicted`: whether the path has tokens of the client's prediction. Then further paths will be like it, and the
        rate that they reach is the price where it is above that of the draft model's tokens.
        """
        if not predicted:
            return self.prospects.price
        tokens = accumulate(chances[since : since + self.reach + 1])
        passes = (latencies.cost(drafts) + latencies.queue for drafts in range(self.reach + 1))
        reached = max((each / taken for each, taken in zip(tokens, passes, strict=False)), default=0.0)
        return max(self.prospects.price, reached / chances[min(since, len(chances) - 1)])

    def to_send(
        self,
        latencies: LatencyModel,
        chances: Sequence[float],
        since: int,
        drawn: Sequence[bool] | None = None,
        *,
        forced: Sequence[bool] = (),
        predicted: bool = False,
    ) -> int:
        """How many draft tokens of a path to send. `chances`, `since` and `forced` as for `worth_sending`.

        `drawn`: for each draft token of the path, whether it must be sent because it was drawn; None: none must be.
        `predicted`: as for `price`.
        """
        if self.fixed is not None:
            return min(len(chances) - 1, since + self.cap)
        price = self.price(latencies, chances, since, predicted=predicted)
        count = worth_sending(latencies, chances, since, self.reach, price, forced)
        return max(count, *(at for at, must in enumerate(drawn or (), 1) if must), 0)

    def beside(self, latencies: LatencyModel, gains: Sequence[float], fresh: int, given: float) -> int:
        """How many draft tokens beside a path to send.

        `gains`: chance of each that the text passes through it, the greatest first.
        `fresh`: draft tokens of the path that the verifier judges with them, which it does with the chance `given`.
        """
        price, plain = self.prospects.price * given, latencies.cost(fresh)
        best, best_value, value = 0, 0.0, 0.0
        for count, gain in enumerate(gains, 1):
            value += gain
            worth = value - price * (latencies.cost(fresh + count) - plain)
            if worth > best_value:
                best, best_value = count, worth
            elif count - best > _TILE:
                break
        return best

    def plan(
        self,
        starts: Sequence[PassStart],
        chances: Sequence[float],
        made: int,
        *,
        known: int,
        room: int,
        waited_for: bool,
        latencies: LatencyModel,
        forced: Sequence[bool] = (),
        predicted: bool = False,
    ) -> DraftPlan | None:
        """The plan for the next verify request; None where no draft pays.

        `starts[n]`: when the verifier pass would start for a request that leaves with n draft tokens more than the
            `made` ones of the path.
        `chances[k]`: chance that the first k draft tokens of the path are accepted.
        `known`: tokens of the committed text.
        `room`: most draft tokens in the request.
        `waited_for`: the verifier idles until a draft comes.
        `forced`: as for `worth_sending`. Such tokens do not count towards `cap`: no model drafts them.
        `predicted`: as for `price`.
        """
        if self.fixed is None:
            since = starts[0].position - known
            most = self.cap + sum(forced[since:]), self.reach
            chosen = replace(self.prospects, price=self.price(latencies, chances, since, predicted=predicted))
            return _best_plan(
                starts,
                chances,
                made,
                known=known,
                most=most,
                waited_for=waited_for,
                latencies=latencies,
                prospects=chosen,
                forced=forced,
            )
        skip, ahead = starts[0].position - known, len(starts) - 1
        missing = min(self.cap, room - skip) - (made - skip)
        if self.cap and missing > 0 and ahead:
            return DraftPlan(min(missing, ahead), skip)
        if made < skip or (made == skip and not waited_for):
            return None
        return DraftPlan(0, skip)


def prospects(
    latencies: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
) -> Prospects:
    """The best rate over all draft lengths from 0 to MAX_AUTO, and the settings that reach it.

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
        rate = max(rate, 1.0 / latencies.cost(0))
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
    gain, each, runs = 0.0, [0.0], _runs(forced)
    for drafts in range(1, min(len(chances) - 1 - since, most) + 1):
        at = since + drafts
        chance, behind = chances[at], runs[at] if at < len(runs) else 0
        is_forced = at <= len(forced) and forced[at - 1]
        gain += chance * (not behind if is_forced else max(1, behind))
        # The next pass reads those of the run behind that this one does not, as it reads one token in any case.
        later = chance * price * (latencies.cost(drafts + behind - 1) - latencies.cost(drafts)) if behind else 0.0
        each.append(gain - later - given * (latencies.cost(drafts) - plain))
    return list(accumulate(each, max))


def _runs(forced: Sequence[bool]) -> list[int]:
    """Item k: how many forced tokens follow the first k draft tokens one after the other."""
    runs = [0]
    for each in reversed(forced):
        runs.append(runs[-1] + 1 if each else 0)
    return runs[::-1]


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


def _best_plan(
    starts: Sequence[PassStart],
    chances: Sequence[float],
    made: int,
    *,
    known: int,
    most: tuple[int, int],
    waited_for: bool,
    latencies: LatencyModel,
    prospects: Prospects,
    forced: Sequence[bool],
) -> DraftPlan | None:
    """The plan of the greatest value; None where no draft pays. Arguments as for `DraftLength.plan`.

    A draft token gains its chance of acceptance, less the cost of verifying it. Waiting for it costs the tokens that
    the verifier would have produced meanwhile.
    `most`: draft tokens judged at once, `DraftLength.cap` and `reach`.
    """
    cap, reach = most
    # Share of its gain that a draft token loses if it is left out of this request. It goes into the next one, unless
    # that is full without it.
    loss = 1.0
    if prospects.overlap:
        loss = min(1.0, latencies.verify(0) / (latencies.draft() * max(1, prospects.unhurried)))
    best: DraftPlan | None = None
    best_value, at_once = 0.0, None
    worth: dict[int, list[float]] = {}
    for more, start in enumerate(starts):
        skip = start.position - known
        fresh = made + more - skip
        if more and (fresh > cap or (best_value > 0.0 and start.position > starts[0].position)):
            break
        if fresh < 0 or (not fresh and not waited_for):
            continue
        if skip not in worth:
            worth[skip] = worths(latencies, chances, skip, reach, prospects.price, forced)
        gain = worth[skip][min(fresh, reach)]  # draft tokens beyond `reach` are not sent
        at_once = gain if at_once is None else at_once
        waiting = prospects.rate * (start.at - starts[0].at) - (start.position - starts[0].position)
        given = chances[min(starts[0].position - known, made)]
        value = at_once + loss * (gain - at_once) - given * waiting
        if value > best_value + _ROUNDING or (best is None and waited_for):
            best, best_value = DraftPlan(more, skip), value
    return best
