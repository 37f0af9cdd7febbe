"""A stand-in of `drafter serve`: its page, and answers whose tokens come at a given pace. It computes nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from itertools import cycle
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from lab.benchmarks.page.texts import ANSWERS
from specpair.http_service.replies.static_files import StaticFiles

SOURCES = ["accepted"] * 5 + ["recovered", "accepted", "accepted", "bonus", "target_decoded"]

stand_in = FastAPI()
StaticFiles("drafter_client.serve", "page").add_to(stand_in)


@stand_in.get("/health")
def health() -> dict[str, str]:
    return {"status": "ready"}


@stand_in.get("/v1/models")
def models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "stand-in", "object": "model", "max_model_len": 32768}]}


@stand_in.post("/v1/chat/completions")
async def completions(request: Request) -> StreamingResponse:
    """The answer that the last message names: `PACE NAME`, at PACE tokens a second; 0: at once."""
    body = await request.json()
    pace, _, name = body["messages"][-1]["content"].partition(" ")
    return StreamingResponse(_chunks(ANSWERS[name], float(pace)), media_type="text/event-stream")


async def _chunks(tokens: Sequence[str], pace: float) -> AsyncIterator[str]:
    due = time.perf_counter()
    for token, source in zip(tokens, cycle(SOURCES), strict=False):
        if pace:
            due += 1 / pace
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        decision = {"p": 0.93, "draft": token, "draft_p": 0.93, "q": 0.88, "verdict": "accepted"}
        details = [{"text": token, "source": source, "decision": decision}]
        yield _event({"index": 0, "delta": {"content": token}, "finish_reason": None, "token_details": details})
    yield _event({"index": 0, "delta": {}, "finish_reason": "stop"})
    yield "data: [DONE]\n\n"


def _event(choice: dict[str, Any]) -> str:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
    return f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n"
