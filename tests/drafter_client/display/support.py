"""Statistics of a run in which everything happened."""

from collections import Counter

from drafter_client.statistics import Baseline, Stats, Turn, WaitTimes
from specpair.corpus.draft_corpus import CorpusState
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.schedule import Schedule


def everything(mode: str = "remote") -> Stats:
    """A run with every row, as long as they get."""
    return stats_of(
        mode=mode,
        cached_tokens=8,
        token_times=[] if mode in ("remote", "fused", "auto") else [0.02] * 100,
        looked_up=90,
        looked_up_accepted=70,
        corpus=CorpusState(120, 34000, {"binary": 7}, 12, indexing=True),
        prediction_tokens=80,
        prediction_accepted=60,
        prediction_rejected=5,
        drafts_sent=31,
        mispredicted=40,
        next_draft_ready=30,
        schedules=Counter(dict(zip(Schedule, (30, 30, 39), strict=True))) if mode in ("remote", "auto") else Counter(),
        turns=[Turn("remote", 16), Turn("target", 12), Turn("remote", 72)] if mode == "auto" else [],
        why="remote 50.1, target 20.3 tokens/s" if mode == "auto" else "",
        verifiers=[] if mode == "solo" else ["http://127.0.0.1:8001", "http://127.0.0.1:8002"],
        resumed=[] if mode == "solo" else [9, 78],
        outages=0 if mode == "solo" else 2,
        outage_time=0.0 if mode == "solo" else 1.25,
        token_sources=[*Counter(dict(zip(TokenSource, (30, 32, 8, 22, 8), strict=True))).elements()],
        sampling={
            **{"temperature": 0.8, "seed": 2**53 - 1, "strategy": "probabilistic"},
            **{"min_p": 0.05, "logit_bias": {"5": 1.0, "7": -100.0}},
            **{"presence_penalty": -1.25, "frequency_penalty": -1.25, "repetition_penalty": 1.25},
        },
        times=WaitTimes(0.04, 4.0, 99.999, 0.06, 7.0),
        context=112,
        baseline=Baseline(20.0, 39.0, 100, True),
    )


def stats_of(**changes: object) -> Stats:
    stats = Stats(
        model="big-7b",
        draft_model="small-1b",
        prompt_tokens=12,
        token_ids=list(range(100)),
        rounds=25,
        drafted=96,
        accepted=75,
        ttft=0.0416,
        total_time=2.0,
        times=WaitTimes(prefill=0.04, drafting=0.4, network=0.8, queue=0.06, verify=0.7),
        bytes_sent=3072,
        bytes_received=10240,
        finish_reason="length",
    )
    for name, value in changes.items():
        setattr(stats, name, value)
    return stats
