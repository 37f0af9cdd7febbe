"""All that was found, as tables for the terminal and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from drafter_client.doctor.machine import Finding, InstalledEngine, Machine
from drafter_client.doctor.speed import WIDE, Gain, ModelSpeed
from drafter_client.options import Mode
from specpair.command_line.table import Table, figure, print_table
from specpair.numbers import sized
from specpair.protocol.terminal_text import one_line

_MS = 1e3  # milliseconds a second


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What the doctor found. `findings`: what is missing or wrong; `notes`: what else there is to say of verifiers."""

    machine: Machine
    engines: Sequence[InstalledEngine]
    models: Sequence[ModelSpeed]
    gains: Sequence[Gain]
    notes: Sequence[str]
    findings: Sequence[Finding]

    def json(self) -> dict[str, Any]:
        """One object. Times are in milliseconds, sizes in bytes, rates in tokens a second."""
        machine = asdict(self.machine) | {"gpus": [gpu._asdict() for gpu in self.machine.gpus]}
        return {
            "machine": machine,
            "engines": [{"name": each.name, "version": each.version, "mend": each.mend} for each in self.engines],
            "models": [_model(each) for each in self.models],
            "verifiers": [_gain(each) for each in self.gains],
            "missing": [{"what": each.what, "mend": each.mend} for each in self.findings],
        }

    def show(self, console: Console) -> None:
        """Print the tables, then what is missing. Nothing in what other programs sent can move the cursor."""
        _heading(console, "This machine")
        for line in _machine_lines(self.machine):
            console.print(Text(f" {one_line(line)}"), soft_wrap=True)
        _heading(console, "Engines")
        for each in self.engines:
            version = each.version or "not installed"
            console.print(Text(f" {each.name:<14} {version:<14} {one_line(each.mend)}".rstrip()), soft_wrap=True)
        if self.models:
            _heading(console, f"Models on {self.models[0].engine}")
            print_table(_models_table(self.models), console)
        for gain in self.gains:
            _heading(console, f"The verifier at {one_line(gain.url)}")
            for line in _gain_lines(gain):
                console.print(Text(f" {one_line(line)}"), soft_wrap=True)
            print_table(_rates_table(gain), console)
        for note in self.notes:
            _heading(console, "No verifier")
            console.print(Text(f" {one_line(note)}"), soft_wrap=True)
        _heading(console, "Missing" if self.findings else "Nothing is missing")
        for finding in self.findings:
            console.print(Text(f" {one_line(finding.what)}"), soft_wrap=True)
            if finding.mend:
                console.print(Text(f"   {one_line(finding.mend)}", "bold"), soft_wrap=True)


def _heading(console: Console, title: str) -> None:
    console.print(Text(f"\n{title}", "bold"))


def _machine_lines(machine: Machine) -> list[str]:
    bandwidth = "not measured" if machine.bandwidth is None else f"{sized(machine.bandwidth)}/s"
    return [
        f"{machine.processor}, {machine.cores} cores; {machine.system}",
        f"{sized(machine.memory)} of memory, {sized(machine.free)} free; {machine.threads} threads read {bandwidth}",
        *(f"{gpu.kind}: {gpu.name}" for gpu in machine.gpus or ()),
        *([] if machine.gpus else ["no GPU is seen"]),
    ]


def _models_table(models: Sequence[ModelSpeed]) -> Table:
    headings = ("model", "step ms", "tokens/s", f"pass of {WIDE} ms", "in steps", "weights GB/s")
    rows = []
    for each in models:
        wide, read = each.wide, each.bandwidth
        rows.append(
            (
                each.name,
                figure(_MS * each.step),
                figure(1 / each.step),
                figure(None if wide is None else _MS * wide),
                figure(None if wide is None else wide / each.step),
                figure(None if read is None else read / 1e9),
            )
        )
    return Table(headings, tuple(rows))


def _gain_lines(gain: Gain) -> list[str]:
    passes = gain.target.pass_ms
    wide = f", {figure(passes[WIDE - 1])} ms of {WIDE}" if len(passes) >= WIDE else ""
    cost = f"a pass of 1 token takes {figure(passes[0])} ms{wide}" if passes else "it tells no times of passes"
    lines = [
        f"{gain.target.name} on {gain.target.engine}; {cost}",
        f"the round trip takes {figure(_MS * gain.round_trip)} ms",
    ]
    if gain.draft is not None:
        step = "" if gain.step is None else f", {figure(_MS * gain.step)} ms a token"
        lines.append(f"{gain.draft} drafts here{step}")
    if gain.shares_cores:
        lines.append("both ends need the same cores of this machine")
    best, ratio = gain.best, gain.ratio(gain.best)
    if best is Mode.TARGET:
        lines.append("no mode is expected to be faster than the target alone")
    elif ratio is not None:
        lines.append(f"{best} is expected to be the fastest: {ratio:.2f} times the target alone")
    return lines


def _rates_table(gain: Gain) -> Table:
    rows = [
        (str(mode), figure(each.likely), figure(each.low), figure(each.high), figure(gain.ratio(mode)))
        for mode, each in sorted(gain.rates.items(), key=lambda item: item[0] is not Mode.TARGET)
    ]
    return Table(("mode", "tokens/s, expected", "at least", "at most", "times the target"), tuple(rows))


def _model(speed: ModelSpeed) -> dict[str, Any]:
    return {
        "name": speed.name,
        "engine": speed.engine,
        "bytes": speed.size,
        "threads": speed.threads,
        "step_ms": _MS * speed.step,
        f"pass_of_{WIDE}_ms": None if speed.wide is None else _MS * speed.wide,
    }


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        "url": gain.url,
        "model": gain.target.name,
        "backend": gain.target.engine,
        "pass_ms": list(gain.target.pass_ms),
        "round_trip_ms": _MS * gain.round_trip,
        "draft_model": gain.draft,
        "draft_step_ms": None if gain.step is None else _MS * gain.step,
        "shares_cores": gain.shares_cores,
        "expected": {str(mode): each._asdict() for mode, each in gain.rates.items()},
        "fastest": gain.best,
        "refusal": gain.refusal or None,
    }
