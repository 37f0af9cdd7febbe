"""Traces to make reports of."""

import json
import re
from pathlib import Path
from typing import Any

from drafter_client.trace.writer import ROUNDS, RUNS, TOKENS
from tests.lab.report.folders import ROUND, RUN

HOSTILE = (
    "</script><script>window.broken = 1</script><!-- <img src=x onerror='window.broken = 2'> javascript:broken() "
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202egnp.exe\u202c ${broken} \u2028 & &lt; \ud83d"
)


def data_of(page: str) -> dict[str, Any]:
    """The data in a report, read as docs/traces.md says."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    body: dict[str, Any] = json.loads(found[1])
    return body


def write_rounds(folder: Path, rounds: int, said: str = "word ") -> None:
    """Write a run of so many rounds, 40 ms apart. Each drafts four tokens, of which two are accepted, and commits
    three. In mode auto it begins with `remote` and ends with `target`; an outage is in the middle.

    `said`: the characters of each token; the models and a setting have them in their names, too.
    """
    tokens, drafts = 3 * rounds + 1, [7, 8, 9, 10]
    end = 40.0 * rounds + 20.0
    run = {**RUN, "mode": "auto", "model": f"big {said}", "draft_model": said, "rounds": rounds, "drafts_sent": rounds}
    run |= {"drafted": 4 * rounds, "accepted": 2 * rounds, "acceptance_rate": 0.5, "mean_acceptance_length": 3.0}
    run |= {"generated_tokens": tokens, "total_ms": end, "finish_reason": "length"}
    listed: list[dict[str, Any]] = [
        {
            **ROUND,
            **{"round": at + 1, "position": 6 + 3 * at, "k": 4, "judged": 4, "accepted": 2, "ran": 1, "looked_up": 0},
            **{"confidence_mean": 0.7, "confidence_min": 0.4, "draft_ms": 10.0, "sent_ms": 40.0 * at + 20.0},
            **{"rtt_ms": 30.0, "network_ms": 8.0, "queue_ms": 2.0, "forward_ms": 20.0, "committed": 3},
            "arrived_ms": 40.0 * at + 50.0,
        }
        for at in range(rounds)
    ]
    committed: list[dict[str, Any]] = [
        {
            **{"run": 1, "position": 5 + at, "token": 7 + at % 4, "target_decoded": 0},
            "source": "bonus" if at == 0 else ("accepted", "accepted", "recovered")[(at - 1) % 3],
            "committed_ms": 15.0 if at == 0 else 40.0 * ((at - 1) // 3) + 50.0,
        }
        for at in range(tokens)
    ]
    detail = {
        **{"schema": 1, "run": 1, "machine": {"processor": said}},
        "settings": {"mode": "auto", "max_tokens": tokens, "stop": [said], "cache_salt": "pepper"},
        "metrics": {
            "turns": [{"mode": "remote", "tokens": 2 * rounds}, {"mode": "target", "tokens": tokens - 2 * rounds}],
            "why": f"remote measured {said}",
            "resumed": [tokens // 2],
            "times_ms": {},
            "total_ms": end,
        },
        "prefills": [{"sent_ms": 0.0, "queue_ms": 0.0, "forward_ms": 10.0, "arrived_ms": 15.0}],
        "rounds": [
            {"drafts": drafts, "confidence": [0.9, 0.8, 0.7, 0.4], "from_lookup": [False] * 4} for _ in range(rounds)
        ],
        "steps": [
            {"began_ms": 40.0 * at + 10.0, "ended_ms": 40.0 * at + 20.0, "read": 1, "width": 2, "drafts": [7, 8]}
            for at in range(rounds)
        ],
        "self_continuation_passes": [],
        "tokens": [
            {"round": None, "draft": None, "draft_source": None, "confidence": None},
            *(
                {
                    "round": at + 1,
                    "draft": drafts[n],
                    "draft_source": ("lookup", "model", "model")[n],
                    "confidence": 0.7,
                }
                for at in range(rounds)
                for n in range(3)
            ),
        ],
        "text": [said] * tokens,
        "pieces": {f"{token}": said for token in drafts},
    }
    folder.mkdir(exist_ok=True)
    (folder / "runs.csv").write_text(RUNS.header + RUNS.lines([run]), encoding="utf-8", errors="replace")
    (folder / "rounds.csv").write_text(ROUNDS.header + ROUNDS.lines(listed), encoding="utf-8")
    (folder / "tokens.csv").write_text(TOKENS.header + TOKENS.lines(committed), encoding="utf-8")
    (folder / "run-1.json").write_text(json.dumps(detail), encoding="utf-8")
