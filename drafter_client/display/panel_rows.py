"""The rows, bars and notes of the panel, as text. The mode selects them. A dash stands for an unknown value."""

from drafter_client.options import Mode
from drafter_client.statistics import NETWORK, OTHER, OUTAGE, PREFILL, QUEUE, SOLO, VERIFY, Stats, fitted, itl
from specpair.numbers import counted
from specpair.protocol.terminal_text import one_line
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.drafting.composed_context import ContextRead
from specpair.speculation.policy.schedule import Schedule


def share(value: float | None) -> str:
    """A share, 0 to 1, in percent."""
    return "-" if value is None else f"{value:.1%}"


def unit(value: float | None, name: str = "") -> str:
    """A value with two decimals and the name of its unit, if it has one."""
    return "-" if value is None else f"{value:.2f} {name}".rstrip()


def size(count: int) -> str:
    """A number of bytes, in KiB."""
    return f"{count / 1024:.1f} KiB"


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds with two decimals."""
    return unit(None if seconds is None else 1e3 * seconds, "ms")


def ttft(seconds: float, tokens: int) -> str:
    """TTFT of a text with `tokens` tokens; a dash for one that never began."""
    return f"{1e3 * seconds:.0f} ms" if tokens else "-"


LabelledValue = tuple[str, str]  # label and value; docs/readout.md says what each label means
Bar = tuple[str, float]  # label and seconds

_EXACT: dict[str, str] = {
    Strategy.DETERMINISTIC: "target's argmax",
    Strategy.GREEDY: "target's argmax",
    Strategy.PROBABILISTIC: "target's sample",
    Strategy.THRESHOLD: "lossy",
}
SOURCES = {
    TokenSource.ACCEPTED: "accepted",
    TokenSource.RECOVERED: "recovered",
    TokenSource.BONUS: "bonus",
    TokenSource.TARGET_DECODED: "target-decoded",
    TokenSource.HEAD: "by its head",
    TokenSource.FORCED: "forced",
}
_COMPARED = {
    True: "same text",
    False: "the text differs, most likely after a near-tie (docs/strategies.md: near-ties)",
    None: "another text, as by this strategy it may be",
}
_SLOWER = 0.95  # a speed-up below this is no measurement error


def title(stats: Stats) -> str:
    """The title: which models wrote the text."""
    said = stats.model
    if stats.mode in (SOLO, Mode.TARGET):
        said += " alone" + (", on this machine" if stats.mode == SOLO else "")
    elif stats.draft_model:
        said = f"{stats.draft_model} drafts for {said}" + (", on the verifier" if stats.mode == Mode.FUSED else "")
    return one_line(said)  # names may be of files, with any characters


def columns(stats: Stats) -> tuple[list[LabelledValue], list[LabelledValue]]:
    """The rows about the text, and those about how it was generated."""
    text: list[LabelledValue] = [
        ("prompt", counted(stats.prompt_tokens, "token")),
        *([("prompt cached", counted(stats.cached_tokens, "token"))] if stats.cached_tokens else []),
        ("generated", counted(stats.generated_tokens, "token")),
        ("ended by", _end(stats)),
        ("TTFT", ttft(stats.ttft, stats.generated_tokens)),
        ("speed", unit(stats.tokens_per_second, "tokens/s")),
    ]
    if stats.mode in (SOLO, Mode.TARGET):
        latencies = itl(stats.token_times) or dict.fromkeys(("median", "p90", "longest"))
        of_the_model = [*((f"ITL {name}", ms(value)) for name, value in latencies.items()), ("TPOT", ms(_tpot(stats)))]
        return text, of_the_model
    return text, [
        ("rounds", str(stats.rounds)),
        ("draft tokens", str(stats.drafted)),
        ("accepted", str(stats.accepted)),
        ("acceptance rate", share(stats.acceptance_rate)),
        ("mean acceptance length", unit(stats.mean_acceptance_length)),
    ]


def couples(stats: Stats) -> list[tuple[LabelledValue, LabelledValue]]:
    """Pairs of rows that belong together."""
    asked = stats.sampling
    pairs: list[tuple[LabelledValue, LabelledValue]] = []

    def add(label: str, value: object, label_beside: str, value_beside: object) -> None:
        pairs.append(((label, str(value)), (label_beside, str(value_beside))))

    if stats.looked_up:
        add("looked up", counted(stats.looked_up, "draft token"), "looked up, accepted", stats.looked_up_accepted)
    if stats.by_head:
        add("by its head", counted(stats.by_head, "draft token"), "by its head, accepted", stats.by_head_accepted)
    if set(stats.schedules) - {Schedule.LOCKSTEP}:
        ready = share(stats.next_draft_ready / stats.mispredicted if stats.mispredicted else None)
        add("mispredicted", counted(stats.mispredicted, "token"), "next draft ready", ready)
        add("drafts sent", stats.drafts_sent, "drafts out of date", stats.drafts_sent - stats.rounds)
    strategy = asked.get("strategy", Strategy.COUPLED)
    if strategy != Strategy.COUPLED:
        add("strategy", strategy, "the text is", exactness(strategy, drafted=_may_be_drafted(stats)))
    if asked.get("temperature"):
        add("temperature", f"{asked['temperature']:g}", "seed", asked.get("seed"))
    least, biased = asked.get("min_p"), len(asked.get("logit_bias", ()))
    if least or biased:
        add("min_p", "off" if least is None else f"{least:g}", "biased tokens", biased)
    if stats.mode != SOLO:
        add("sent", size(stats.bytes_sent), "received", size(stats.bytes_received))
    return pairs


def _tpot(stats: Stats) -> float | None:
    """The average seconds of a token after the first; None for a text of fewer than two tokens."""
    return (stats.working_time - stats.ttft) / (stats.generated_tokens - 1) if stats.generated_tokens > 1 else None


def lines(stats: Stats) -> list[LabelledValue]:
    """Rows that take a line of the panel each."""
    rows: list[LabelledValue] = []
    penalties = {name: stats.sampling.get(f"{name}_penalty") for name in ("presence", "frequency", "repetition")}
    if on := [f"{name} {value:g}" for name, value in penalties.items() if value is not None]:
        rows.append(("penalties", ", ".join(on)))
    if stats.schedules:
        counts = stats.sources
        sources = [f"{counts[source]} {name}" for source, name in SOURCES.items() if counts[source]]
        rows += [("tokens", ", ".join(sources)), ("schedule", _schedules(stats))]
    if stats.draft_context is not None and stats.draft_context.read < stats.draft_context.of:
        rows.append(("draft reads", _read(stats.draft_context)))
    if stats.corpus is not None:
        rows.append(("corpus", stats.corpus.described))
    if stats.prediction_tokens is not None:
        rows.append(("prediction", f"{stats.prediction_accepted} accepted, {stats.prediction_rejected} rejected"))
    if stats.turns:
        rows += [("modes", ", ".join(f"{turn.mode} {turn.tokens}" for turn in stats.turns)), ("why", stats.why)]
    if stats.verifiers:
        rows.append(("verifier", one_line(", then ".join(stats.verifiers))))
    if stats.outages:
        rows.append(("outages", f"{stats.outages}, {stats.outage_time:.1f} s of waiting, no part of the speed"))
    if stats.resumed:
        rows.append(("resumed", f"at token {_resumed_at(stats)}, after the verifier went away"))
    return rows


def _read(context: ContextRead) -> str:
    """What the draft model had read of the text, in words."""
    parts = [f"{count} {name}" for name, count in zip(context._fields[:-1], context, strict=False) if count]
    return f"{context.read} of {counted(context.of, 'token')}: {', '.join(parts)}"


def _resumed_at(stats: Stats) -> str:
    return ", ".join(map(str, stats.resumed))


def _schedules(stats: Stats) -> str:
    """The schedules of the text; if there are several, each with its share of the committed tokens."""
    if len(stats.schedules) == 1:
        return next(iter(stats.schedules)).value
    total = sum(stats.schedules.values())
    return ", ".join(f"{schedule.value} {count / total:.0%}" for schedule, count in stats.schedules.most_common())


def bars(stats: Stats) -> list[Bar]:
    """The seconds that the text waited for each part. They add up to the total time; none is negative."""
    if stats.mode == SOLO:
        generating = max(0.0, stats.total_time - stats.times.prefill)
        return list(fitted({PREFILL: stats.times.prefill, "generating": generating}, stats.total_time).items())[:2]
    waits = stats.waits()
    shown = {part: part for part in waits}
    if stats.mode == Mode.TARGET:
        shown = {VERIFY: "forward", QUEUE: QUEUE, NETWORK: NETWORK, OTHER: OTHER, OUTAGE: OUTAGE}
    elif stats.mode == Mode.FUSED:
        del shown[PREFILL]  # the verifier reports it as part of verify
    if not stats.outages:
        del shown[OUTAGE]
    waits[OTHER] += sum(value for part, value in waits.items() if part not in shown)
    return [(name, waits[part]) for part, name in shown.items()]


def exactness(strategy: str, *, drafted: bool) -> str:
    """The guarantee of `strategy`, in words. Not for `coupled`: its text is the target's sample under shared noise."""
    if strategy == Strategy.THRESHOLD and not drafted:
        return "target's sample"
    return _EXACT.get(strategy, "?")


def lossy(stats: Stats) -> bool:
    """Whether the text may differ from the target's own; false if the target wrote all of it."""
    return stats.sampling.get("strategy") == Strategy.THRESHOLD and _may_be_drafted(stats)


def _may_be_drafted(stats: Stats) -> bool:
    modes = [turn.mode for turn in stats.turns] or [stats.mode]
    return set(modes) != {Mode.TARGET}


def headline(stats: Stats) -> list[str]:
    """The main metrics, the most important first, each readable by itself."""
    metrics = [counted(stats.generated_tokens, "token")]
    if stats.tokens_per_second is not None:
        metrics.append(f"{stats.tokens_per_second:.1f} tokens/s")
    metrics.append(f"TTFT {ttft(stats.ttft, stats.generated_tokens)}")
    if stats.mode in (SOLO, Mode.TARGET):
        metrics += [] if (pace := _tpot(stats)) is None else [f"TPOT {ms(pace)}"]
    else:
        metrics.append(f"acceptance rate {share(stats.acceptance_rate)}")
    metrics.append(f"ended by {_end(stats)}")
    if stats.speed_up is not None:
        metrics.append(f"{stats.speed_up:.2f}x the target")
    return metrics


def resumed(stats: Stats) -> list[str]:
    """The note on outages that goes with the main metrics; the full panel has a row for them."""
    found = []
    if stats.resumed:
        found.append(f"the verifier went away, and the text was taken up again at token {_resumed_at(stats)}")
    if stats.outages:
        found.append(f"waited {stats.outage_time:.1f} s for the verifier, in {counted(stats.outages, 'outage')}")
    return found


def notes(stats: Stats) -> list[str]:
    """Notes on what a reader may not expect."""
    found = []
    if stats.draft_failure is not None:
        found.append(f"the draft model failed, the target wrote the rest alone: {one_line(stats.draft_failure)}")
    if lossy(stats):
        found.append(
            f"lossy: draft tokens were accepted that the target gave more than {stats.sampling.get('threshold')}; "
            "the text is not the target's own"
        )
    elif stats.ended_by == "context":
        found.append(f"the context ({stats.context} tokens) is full: --max-tokens asked for more")
    return found


def hints(stats: Stats) -> list[str]:
    """Explanations of metrics that look like a fault, a line each."""
    baseline = stats.baseline
    if stats.token_ids and stats.undrafted and baseline is not None:
        return ["no drafts were used: this is as fast as the target alone, and any difference is noise"]
    if stats.mode in (SOLO, Mode.TARGET):
        return []
    found = []
    if stats.token_ids and not stats.drafted and stats.draft_failure is None:
        found.append("acceptance rate -: the target wrote alone, no draft token was judged")
    if baseline is not None and (stats.resumed or baseline.tokens_per_second is None):
        found.append("no speed-up: an outage interrupted what was measured")
    elif baseline is not None and baseline.tokens_per_second and (stats.speed_up or 1.0) < _SLOWER:
        times = f"target alone: {1e3 / baseline.tokens_per_second:.1f} ms a token"
        found.append(f"below 1x: drafting cost more than it saved ({times})")
        if stats.draft_token_ms is not None:
            found.append(f"a draft token took {stats.draft_token_ms:.1f} ms")
        # A short text ends before `auto` has measured the modes; the next one begins with what it has learnt.
        choose = "the next text" if stats.mode == Mode.AUTO else "--mode auto"
        found.append(f"{choose} takes the fastest way; a smaller draft model gains more")
    return found


def compared(stats: Stats) -> str | None:
    """Whether the text is that of the baseline, in words; None without a baseline."""
    return None if stats.baseline is None else _COMPARED[stats.baseline.same_tokens]


def _end(stats: Stats) -> str:
    return stats.ended_by or ("error" if stats.failed else "interrupt")
