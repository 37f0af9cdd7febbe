"""How many clients one verifier carries: 1 to 64 drafters, the target alone, and a verifier that takes one at a time.

Method. Python on a laptop cannot play 64 laptops in real time, so there are two forms. Both give tokens per second of
all clients together, and the 50th and 95th percentile of the time between tokens, which is taken for each client by
itself: shown are the median client's, and the 95th percentile of the client that has the worst.

    virtual   the real scheduler and the real drafters' decisions in virtual time (`simulation.capacity`)
    real      the real server with replayed drafters and a toy target, all times dilated (`benchmarks.capacity_real`);
              void runs are repeated at most twice, and marked where the last is void, too

A pass takes what `simulation.paced` says of a target of 25 ms, a draft 8 ms, the link 5 ms there and back; drafters
agree with a chance of 0.8. Texts, bounds and times between tokens are defined in `simulation.capacity_model`. Bounds
are taken over the very parts of texts that a form wrote while it was watched. Then, in virtual time:

    carried   how many clients get a rate each, on average, for the rate that the target alone gives to one client, and
              for two thirds of it: ours and k=4, over what drafting on the server carries at that rate, which is
              arithmetic (`server_drafting`; fractions of clients count). To be reached: (1 + k t_d / t_v) / 1.15, with
              k = 4 and both times as they are for one client, and (harder) as they are in the server's own batches.
    prompt    what a prompt of 2,000 tokens adds to the rounds of 8 and 16 clients in lockstep (sent to answered), each
              compared with the same round of a run without it. To be reached: no more than the pass of a chunk
              takes, which a guess may have to wait for that comes as one begins. (To a pass that there is anyway, a
              chunk adds less.)

    python -m benchmarks.capacity [--forms virtual real carried prompt] [--clients 1 2 4 8 16 32 64]
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import capacity_real
from benchmarks.extras import need
from benchmarks.report import Report, add_save, plot
from simulation import capacity
from simulation.capacity import FORMS, Setting
from simulation.capacity_model import (
    Figures,
    KnownText,
    Part,
    lockstep,
    pass_ms,
    saturated,
    server_drafting,
    tokens_per_round,
)
from simulation.paced import DRAFTER_8, TARGET_25

SETTING = Setting(TARGET_25, DRAFTER_8)
CHUNK, PROMPT = 128, 2000
_SLOW = {"ours, one by one": 8}  # clients beyond which nothing changes but how long the measurement takes
_CARRIED_MOST = 48
_TRIES = 3  # a void run of the real form is repeated: other programs may have kept the machine busy
_SHARE, _SLACK, _AT = 0.85, 1.15, 32  # what is to be reached
_BOUNDS = {"saturated": "what any scheduling allows", "lockstep": "what lockstep allows"}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", nargs="+", choices=_MEASURE, default=list(_MEASURE))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--seconds", type=float, default=SETTING.seconds, help="watched, before dilation")
    parser.add_argument("--real-clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--real-seconds", type=float, default=2.0)
    parser.add_argument("--dilation", type=float, default=8.0)
    parser.add_argument("--file", default="capacity", help="name of the results")
    add_save(parser)
    options = parser.parse_args()
    need("matplotlib")
    report = Report("capacity", options, options.file)
    rows: list[Row] = []
    for form in options.forms:
        rows += _MEASURE[form](options, report)
    report.save()
    lines = [json.dumps(row) + "\n" for row in rows]
    report.beside(".jsonl").write_text("".join(lines), encoding="utf-8")
    if _of(rows, "virtual", "ours"):
        figure(rows, report.beside(".png"))


def _virtual(options: argparse.Namespace, report: Report) -> list[Row]:
    """The table of the virtual form."""
    setting = _watched(options.seconds)
    report.line(f"\nVirtual time, {setting.seconds:g} s behind {setting.warm_up:g} s")
    report.line(_HEAD + "  sessions/pass  busy  of all there is  of what lockstep allows")
    rows = []
    for clients in options.clients:
        for name, form in FORMS.items():
            if clients > _SLOW.get(name, clients):
                continue
            outcome = capacity.measure(form, clients, setting)
            row = _row("virtual", name, outcome.figures, outcome.parts, setting)
            rows.append(row | {"rows": outcome.rows, "busy": outcome.busy})
            report.line(f"{_line(row)}  {outcome.rows:13.1f}  {outcome.busy:4.2f}  {_shares(row)}")
    report.line(f"\nAt {_AT} clients {_SHARE} of what the cost model allows is wanted")
    for row in _of(rows, "virtual", "ours") + _of(rows, "virtual", "k=4"):
        for bound in [key for key in _BOUNDS if key in row and row["clients"] == _AT]:
            reached = row["rate"] / row[bound]
            report.line(f"{_verdict(reached >= _SHARE)}: {row['name']}: {reached:.3f} of {_BOUNDS[bound]}")
    return rows


def _real(options: argparse.Namespace, report: Report) -> list[Row]:
    """The table of the real form, each row beside its virtual twin."""
    setting, rows = _watched(options.real_seconds, warm_up=1.0), []
    report.line(f"\nReal server, times divided by {options.dilation:g}: {setting.seconds:g} s behind a warm-up")
    report.line(_HEAD + "  virtual  machine used  worst pass  worst thinking  (late)  tries")
    for clients in options.real_clients:
        for name in ("k=4", "target"):
            tries = 1
            while (run := capacity_real.measure(name, clients, setting, options.dilation)).void and tries < _TRIES:
                tries += 1
            twin = capacity.measure(FORMS[name], clients, setting)
            row = _row("real", name, run.figures, run.parts, setting) | {"virtual": twin.figures.rate}
            noted = ("rows", "used", "worst_pass", "worst_thinking", "late_passes", "late_thoughts", "void")
            rows.append(row | {key: getattr(run, key) for key in noted} | {"tries": tries})
            report.line(
                f"{_line(row)}  {run.figures.rate / twin.figures.rate:7.3f}  {run.used:12.3f}  {run.worst_pass:10.3f}  "
                f"{run.worst_thinking:14.3f}  ({run.late_passes}, {run.late_thoughts})  {tries:5}"
                f"{'  VOID' if run.void else ''}"
            )
    return rows


def _carried(options: argparse.Namespace, report: Report) -> list[Row]:
    """Clients carried at a rate, over what drafting on the server carries."""
    setting, rows = _watched(options.seconds), []
    k, target, drafter = setting.k, setting.target, setting.drafter
    parts = [(text, len(text.prompt) + 1, len(text.prompt) + 301) for text in map(KnownText, range(16))]
    gain = {count: tokens_per_round(parts, count) for count in range(1, 9)}
    report.line("\nClients that get a rate each, on average: drafting remotely, and on the server")
    alone = 1e3 / target.decode_ms
    for rate in (alone, alone / 1.5):
        server = _on_server(rate, gain[k], k, setting)
        at_best = max(_on_server(rate, gain[count], count, setting) for count in gain)
        wanted = {
            "one client's times": (1 + k * drafter.decode_ms / pass_ms(target, 1, k + 1)) / _SLACK,
            "its batch's times": (1 + k * pass_ms(drafter, server, 1) / pass_ms(target, server, k + 1)) / _SLACK,
        }
        report.line(f"{rate:.1f} tokens/s: the server carries {server:.2f} with k={k}, {at_best:.2f} with its best k")
        for name in ("ours", "k=4"):
            count = capacity.carried(FORMS[name], rate, setting, _CARRIED_MOST)
            rows.append({"form": "carried", "name": name, "at": rate, "clients": count, "server": server, **wanted})
            for kind, least in wanted.items():
                reached = count / server
                report.line(
                    f"{_verdict(reached >= least)}: {name} carries {count}, {reached:.2f} times as many "
                    f"({count / at_best:.2f} of its best k), {least:.2f} wanted by {kind}"
                )
    return rows


def _on_server(rate: float, tokens: float, k: int, setting: Setting) -> float:
    """Clients (a fraction counts) to which drafting on the server gives that rate: its cycle is linear in them."""
    one, two = (1e3 * tokens / server_drafting(setting.target, setting.drafter, n, tokens, k) for n in (1, 2))
    return 1.0 + (1e3 * tokens / rate - one) / (two - one)


def _prompt(options: argparse.Namespace, report: Report) -> list[Row]:
    """What a long prompt adds to the rounds of others."""
    setting, rows = _watched(options.seconds), []
    chunk = setting.target.per_token_ms * CHUNK + setting.target.per_row_ms
    whole = pass_ms(setting.target, 1, CHUNK)
    report.line(f"\nA prompt of {PROMPT} tokens among clients in lockstep; a chunk adds {chunk:.1f} ms to a pass")
    for clients in (8, 16):
        found = capacity.intrude(clients, PROMPT, setting, CHUNK)
        rows.append({"form": "prompt", "clients": clients, "chunk": chunk, "chunk_alone": whole, **asdict(found)})
        report.line(
            f"{_verdict(found.most <= whole)}: {clients} clients, {found.rounds} rounds: {found.median:.1f} ms more in "
            f"the median, {found.p95:.1f} at p95, {found.most:.1f} at most, {found.most / whole:.2f} of "
            f"a chunk's pass ({whole:.1f} ms) and {found.most / chunk:.2f} of what it adds to another; "
            f"usual {found.usual:.1f} ms, the prompt took {found.prefill:.0f} ms"
        )
    return rows


_MEASURE = {"virtual": _virtual, "real": _real, "carried": _carried, "prompt": _prompt}
_HEAD = "clients  form              tokens/s   each     p50     p95   worst  arrivals p95"


def _watched(seconds: float, warm_up: float = SETTING.warm_up) -> Setting:
    return Setting(SETTING.target, SETTING.drafter, warm_up=warm_up, seconds=seconds)


def _row(kind: str, name: str, figures: Figures, parts: list[Part], setting: Setting) -> Row:
    bound = saturated(setting.target, figures.clients, lambda k: tokens_per_round(parts, k))
    row = {"form": kind, "name": name, **asdict(figures), "saturated": bound.rate, "best_k": bound.k}
    if name == "k=4":
        tokens = tokens_per_round(parts, setting.k)
        row["lockstep"] = lockstep(setting.target, figures.clients, tokens, setting.k, setting.thinking_ms)
    return row


def _line(row: Row) -> str:
    return (
        f"{row['clients']:7}  {row['name']:16}  {row['rate']:8.1f}  {row['rate'] / row['clients']:5.1f}  "
        f"{row['p50']:6.1f}  {row['p95']:6.1f}  {row['worst_p95']:6.1f}  {row['arrivals_p95']:12.1f}"
    )


def _shares(row: Row) -> str:
    share = f"{row['rate'] / row['saturated']:.3f} (best k {row['best_k']:2})"
    return share + (f"  {row['rate'] / row['lockstep']:.3f}" if "lockstep" in row else "")


def _verdict(holds: bool) -> str:
    return "reached" if holds else "NOT REACHED"


def _of(rows: Iterable[Row], form: str, name: str) -> list[Row]:
    return [row for row in rows if row["form"] == form and row.get("name") == name]


def figure(rows: Sequence[Row], file: Path) -> None:
    """Draw what was measured: rates over clients with their bounds, and times between tokens."""
    with plot(file, columns=2) as [[rates, times]]:
        for number, name in enumerate(FORMS):
            found, color = _of(rows, "virtual", name), f"C{number}"
            _curve(rates, found, "rate", "o-", color=color, label=name)
            _curve(times, found, "p50", "o-", color=color, label=name)
            _curve(times, found, "p95", "o--", color=color)
            _curve(rates, [row for row in _of(rows, "real", name) if not row["void"]], "rate", "kx", zorder=3)
        _curve(rates, _of(rows, "virtual", "ours"), "saturated", "k:", label="bound of any scheduling")
        _curve(rates, _of(rows, "virtual", "k=4"), "lockstep", "k--", label="bound of lockstep, k=4")
        rates.set_title("tokens/s, all clients (x: real server)", fontsize=9)
        times.set_title("ms between tokens, p50 and (dashed) p95", fontsize=9)
        ticks = sorted({row["clients"] for row in rows if row["form"] in ("virtual", "real")})
        for axes in (rates, times):
            axes.set(xscale="log", yscale="log", xlabel="clients")
            axes.set_xticks(ticks, list(map(str, ticks)))
            axes.minorticks_off()
            axes.grid(alpha=0.3)
            if rows:
                axes.legend(fontsize=6, loc="lower right" if axes is rates else "upper left")


def _curve(axes: Any, rows: Sequence[Row], key: str, style: str, **options: Any) -> None:
    axes.plot([row["clients"] for row in rows], [row[key] for row in rows], style, markersize=4, **options)


if __name__ == "__main__":
    main()
