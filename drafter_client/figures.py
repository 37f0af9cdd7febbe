"""What the panel says of a run, in words. Which figures there are depends on who wrote the text."""

from drafter_client.options import Mode
from drafter_client.origin import Origin
from drafter_client.pace import Pace
from drafter_client.stats import Stats
from speculation.acceptance import Strategy
from speculation.operation import Operation
from speculation.terminal_text import one_line

SOLO = "solo"  # as a mode: a model of this machine by itself

Row = tuple[str, str]  # label and value; docs/readout.md says what each label means
Bar = tuple[str, float]  # label and milliseconds

_EXACT: dict[str, str] = {
    Strategy.DETERMINISTIC: "its argmax",
    Strategy.GREEDY: "its argmax",
    Strategy.PROBABILISTIC: "a sample",
    Strategy.THRESHOLD: "no: lossy",
}
_ORIGINS = {
    Origin.ACCEPTED: "accepted",
    Origin.CORRECTION: "corrections",
    Origin.FREE: "free",
    Origin.OWN: "own",
}


def title(stats: Stats) -> str:
    """Who wrote the text."""
    return one_line(_title(stats))  # names of files, among others


def _title(stats: Stats) -> str:
    if stats.mode == SOLO:
        return f"{stats.model} alone, on this machine"
    if stats.mode == Mode.TARGET:
        return f"{stats.model} alone"
    if not stats.draft_model:
        return stats.model
    where = ", on the verifier" if stats.mode == Mode.FUSED else ""
    return f"{stats.draft_model} drafts for {stats.model}{where}"


def columns(stats: Stats) -> tuple[list[Row], list[Row]]:
    """The text, and how it was come by."""
    text: list[Row] = [
        ("prompt", f"{stats.prompt_tokens} tokens"),
        ("generated", f"{stats.generated_tokens} tokens"),
        ("ended by", stats.ended_by or "interrupt"),
        ("TTFT", f"{stats.ttft_ms:.0f} ms"),
        ("speed", _unit(stats.tokens_per_second, "tokens/s")),
    ]
    return text, _of_the_model(stats) if stats.mode in (SOLO, Mode.TARGET) else _of_the_pair(stats)


def couples(stats: Stats) -> list[tuple[Row, Row]]:
    """Figures of which the second says more about the first."""
    told: list[tuple[Row, Row]] = []
    if stats.looked_up:
        told.append((("looked up", f"{stats.looked_up} drafts"), ("of these accepted", str(stats.looked_up_accepted))))
    if set(stats.operations) - {Operation.LOCKSTEP}:
        ready = _share(stats.prepared / stats.misses if stats.misses else None)
        told.append((("misses", f"{stats.misses} tokens"), ("drafts ready after one", ready)))
        late = str(stats.guesses - stats.rounds)
        told.append((("guesses", f"{stats.guesses} sent"), ("of these out of date", late)))
    strategy = stats.sampling.get("strategy", Strategy.COUPLED)
    if strategy != Strategy.COUPLED:
        told.append((("strategy", str(strategy)), ("exact", exactness(strategy, drafted=_may_be_drafted(stats)))))
    if stats.sampling.get("temperature"):
        drawn = f"{stats.sampling['temperature']:g}"
        told.append((("temperature", drawn), ("seed", str(stats.sampling.get("seed")))))
    if stats.mode != SOLO:
        told.append((("sent", _bytes(stats.bytes_sent)), ("received", _bytes(stats.bytes_received))))
    return told


def _of_the_pair(stats: Stats) -> list[Row]:
    return [
        ("rounds", str(stats.rounds)),
        ("drafted", str(stats.drafted)),
        ("accepted", str(stats.accepted)),
        ("acceptance rate", _share(stats.acceptance_rate)),
        ("mean acceptance length", _unit(stats.mean_acceptance_length)),
    ]


def _of_the_model(stats: Stats) -> list[Row]:
    pace = Pace.of(stats.token_ms)
    median, p90, longest = (None, None, None) if pace is None else (pace.median, pace.p90, pace.longest)
    per_token = None if pace is None else (stats.total_ms - stats.ttft_ms) / (stats.generated_tokens - 1)
    return [
        ("ITL median", _unit(median, "ms")),
        ("ITL p90", _unit(p90, "ms")),
        ("ITL longest", _unit(longest, "ms")),
        ("TPOT", _unit(per_token, "ms")),
    ]


def lines(stats: Stats) -> list[Row]:
    """Figures that take a line each."""
    told: list[Row] = []
    if stats.operations:
        origins = [f"{stats.origins[origin]} {name}" for origin, name in _ORIGINS.items() if stats.origins[origin]]
        told += [("tokens", ", ".join(origins)), ("operation", _operations(stats))]
    if stats.turns:
        told += [("modes", ", ".join(f"{turn.mode} {turn.tokens}" for turn in stats.turns)), ("why", stats.why)]
    if stats.resumed:
        told.append(("resumed", f"at token {', '.join(map(str, stats.resumed))}"))
    return told


def _operations(stats: Stats) -> str:
    """Where the pair changed its way of working: shares, by tokens."""
    total = sum(stats.operations.values())
    if len(stats.operations) == 1:
        return next(iter(stats.operations)).value
    return ", ".join(f"{operation.value} {count / total:.0%}" for operation, count in stats.operations.most_common())


def bars(stats: Stats) -> list[Bar]:
    """Where the time went."""
    times = stats.times
    if stats.mode == SOLO:
        return [("prefill", times.prefill), ("generating", max(0.0, stats.total_ms - times.prefill))]
    here = [("network", times.network), ("queue", times.queue), ("verify", times.verify)]
    if stats.mode == Mode.TARGET:
        return [*here[:2], ("forward", times.verify)]
    if stats.mode == Mode.FUSED:
        return [("drafting", times.drafting), *here]
    return [("prefill", times.prefill), ("drafting", times.drafting), *here]


def exactness(strategy: str, *, drafted: bool) -> str:
    """What a text by this strategy is in place of the sample that the target draws under the shared noise."""
    if strategy == Strategy.THRESHOLD and not drafted:
        return "a sample"
    return _EXACT.get(strategy, "?")


def lossy(stats: Stats) -> bool:
    """Whether the text may be another than the target's own: not where the target wrote it by itself."""
    return stats.sampling.get("strategy") == Strategy.THRESHOLD and _may_be_drafted(stats)


def _may_be_drafted(stats: Stats) -> bool:
    modes = [turn.mode for turn in stats.turns] or [stats.mode]
    return set(modes) != {Mode.TARGET}


def note(stats: Stats) -> str | None:
    """What a reader would otherwise be puzzled by."""
    if stats.draft_failure is not None:
        return f"the draft model failed, the target wrote the rest alone: {one_line(stats.draft_failure)}"
    if lossy(stats):
        return (
            f"lossy: drafts were taken that the target gave more than {stats.sampling.get('threshold')}; "
            "the text is not the target's own"
        )
    if stats.ended_by != "context":
        return None
    return f"the context ({stats.context} tokens) is full: --max-tokens asked for more"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _unit(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f} {unit}".rstrip()


def _bytes(count: int) -> str:
    return f"{count / 1024:.1f} KiB"
