"""A trace made by hand, with round numbers."""

import json
from pathlib import Path
from typing import Any

from drafter_client.trace.writer import ROUNDS, RUNS, TOKENS

RUN = {
    **dict.fromkeys(RUNS.names, 0),
    **dict.fromkeys(("finish_reason", "error", "strategy", "threshold", "seed")),
    "run": 1,
    "started": "2026-03-04T12:00:00.250+00:00",
    "mode": "remote",
    "model": "big",
    "draft_model": "small",
    "generated_tokens": 8,
    "finish_reason": "length",
    "tokens_per_second": 40.0,
    "ttft_ms": 40.0,
    "total_ms": 200.0,
    "drafted": 6,
    "accepted": 4,
}
ROUND = {**dict.fromkeys(ROUNDS.names), "run": 1, "round": 1, "schedule": "lockstep", "position": 5, "draft_ms": 20.0}
RESPONSES = (  # sent, k, accepted; network 20 ms, queue 10 ms, forward pass 30 ms
    (60.0, 3, 3),
    (140.0, 3, 1),
)
DETAIL = {
    "schema": 1,
    "run": 1,
    "prefills": [{"sent_ms": 0.0, "queue_ms": 0.0, "forward_ms": 30.0, "arrived_ms": 40.0}],
    "steps": [{"began_ms": 40.0, "ended_ms": 60.0}, {"began_ms": 120.0, "ended_ms": 140.0}],
    "self_continuation_passes": [{"forward_ms": 0.0, "arrived_ms": 0.0}],
}


def write(folder: Path, **run: Any) -> None:
    """Write a run of two rounds that commits eight tokens in 200 ms. `run`: changes to its record in `runs.csv`."""
    rounds = [
        {
            **ROUND,
            "round": number,
            **{"k": k, "judged": k, "accepted": accepted, "ran": 1, "looked_up": 0, "committed": accepted + 1},
            **{"sent_ms": sent, "rtt_ms": 60.0, "queue_ms": 10.0, "forward_ms": 30.0, "network_ms": 20.0},
            "arrived_ms": sent + 60.0,
        }
        for number, (sent, k, accepted) in enumerate(RESPONSES, 1)
    ]
    # A verify request that was in flight when the text ended.
    rounds.append({**ROUND, "round": 3, "k": 2, "sent_ms": 199.0})
    times = [40.0, *[120.0] * 4, *[200.0] * 3]
    tokens = [
        {"run": 1, "position": 5 + at, "token": at, "source": "bonus", "target_decoded": 0, "committed_ms": time}
        for at, time in enumerate(times)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "runs.csv").write_text(RUNS.header + RUNS.lines([{**RUN, **run}]), encoding="utf-8")
    (folder / "rounds.csv").write_text(ROUNDS.header + ROUNDS.lines(rounds), encoding="utf-8")
    (folder / "tokens.csv").write_text(TOKENS.header + TOKENS.lines(tokens), encoding="utf-8")
    (folder / "run-1.json").write_text(json.dumps(DETAIL), encoding="utf-8")
