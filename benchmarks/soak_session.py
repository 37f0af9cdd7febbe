"""One drafter's session: opened, guessed at, streamed, deleted; all that is heard of it is held against the truth."""

import asyncio
import random
import time
from collections.abc import Collection
from typing import Any

from benchmarks.soak_caller import CONTEXT, Caller, Soak
from benchmarks.soak_openings import opening
from benchmarks.soak_truth import Fault, Truth
from benchmarks.soak_wire import request
from speculation.acceptance.strategies import common_prefix
from speculation.sampling.sampling import Sampling

PROMPTLY = 2.0  # seconds within which a stream tells of its session's end


class Checked(Caller):
    """A session whose every answer is checked."""

    def __init__(self, soak: Soak, drafter: int, number: int) -> None:
        super().__init__(soak, drafter, f"d{drafter}-{number}")
        self._names = (drafter, number)
        self._over = False
        self._deleted: float | None = None  # when the verifier said so
        rng = self._rng("opening")
        self._id = self._name if rng.random() < 0.8 else None
        self._prefill = opening(soak, rng)
        self._truth: Truth | None = None
        self._known = 0  # tokens heard of

    def _rng(self, *names: object) -> random.Random:
        return self._soak.rng(*self._names, *names)

    async def _open(self) -> None:
        """Prefill, for the first time or again."""
        must, told, before = self._memory.lasts, self._memory.heard, self._truth
        body = await self.ask("POST", "/prefill", self._opening_body(), named=False)
        if body is None:
            self._over = True
            return
        wanted = self._prefill["temperature"], self._prefill["top_k"], self._prefill["top_p"]
        said = body["sampling"]
        sampling = Sampling(said["seed"], said["temperature"], said["top_k"], said["top_p"])
        if (sampling.temperature, sampling.top_k, sampling.top_p) != wanted:
            raise Fault(f"{self._name} asked for {wanted}, got {sampling}")
        if sampling.seed != self._prefill.get("seed", sampling.seed):
            raise Fault(f"{self._name} asked for {self._prefill['seed']}, got {sampling}")
        if before is not None and sampling != before.sampling and must(told):
            raise Fault(f"{self._name} came back to {sampling}, was {before.sampling}")
        if before is None or sampling != before.sampling:
            prompt = self._prompt_ids()
            self._truth = Truth(self._soak.model, CONTEXT, prompt, sampling, self._prefill.get("max_tokens"))
        truth = self._its_truth
        if body["prompt_ids"] != truth.between(0, truth.prompt_len):
            raise Fault(f"{self._name}: another prompt came back")
        if self._id not in (None, body["session_id"]):
            raise Fault(f"{self._name} asked for {self._id}, got {body['session_id']}")
        if before is not None and must(told) and body["total_tokens"] < self._known:
            raise Fault(f"{self._name}: {self._known} tokens were committed, now {body['total_tokens']}")
        self._id = body["session_id"]
        self._known = body["total_tokens"]
        self._check(truth.prompt_len, body)

    async def _verify(self, position: int, drafts: list[int], allowed: Collection[str] = ()) -> None:
        body: dict[str, Any] = {"position": position, "draft_tokens": drafts}
        if len(drafts) % 3 == 0:
            body["next_in_ms"] = 20.0 + len(drafts)
        if self._prefill["self_continue"] and len(drafts) % 4 == 0:
            body["self_continue"] = position % 2 == 0
        answer = await self.ask("POST", "/verify", body, allowed=allowed)
        if answer is not None:
            if answer["position"] != position:
                raise Fault(f"{self._name} guessed at {position}, the answer is from {answer['position']} on")
            self._check(position, answer, drafts)

    async def _read_stream(self, start: int, fate: str, events: int, delay: float, seconds: float) -> None:
        """Read tokens from `start` on, to the end or for some `seconds`; a crash comes after so many `events`."""
        heard, news = self._memory.heard, time.monotonic()
        truth, position = self._its_truth, start
        path = f"/sessions/{self._id}/stream?from={start}"
        async with self.connection(buffer=2048 if fate == "read slowly" else None) as wire:
            reply = await self.begin_stream(wire, request("GET", path, None, self._headers))
            if reply is not None:
                self.tell_error(reply.code, () if self._memory.lasts(heard) else {"unknown_session"}, reply.status)
                return
            try:
                async with asyncio.timeout(seconds):
                    async for name, data in wire.events():
                        news = time.monotonic()
                        if name == "tokens":
                            position = self._check_event(truth, position, data)
                        elif name == "end":
                            truth.compare(position, [], data["total_tokens"], data["finish_reason"], self._name)
                            if data["finish_reason"] is None:
                                raise Fault(f"{self._name}: a stream ended without a reason")
                            return
                        elif name == "error":
                            allowed = {"unknown_session"} if self._memory.doomed else ()
                            self.tell_error(data["error"]["code"], allowed)
                            return
                        events -= 1
                        if events < 0 and fate == "reset":
                            wire.reset()
                        if events < 0 and fate in ("reset", "hung up"):
                            return
                        if fate == "read slowly":
                            await self._soak.pause(delay)
                raise Fault(f"{self._name}: a stream ended without saying so")
            except TimeoutError:
                # Silence is right while a session waits for guesses, not once it has ended or is gone.
                ended = self._deleted is not None or truth.ending(position) is not None
                if ended and fate == "read" and time.monotonic() > max(news, self._deleted or 0.0) + PROMPTLY:
                    raise Fault(f"{self._name}: a stream said nothing of its session's end") from None

    async def _delete(self) -> None:
        self._memory.doomed, lasted = True, self._memory.lasts(self._memory.heard)
        await self.ask("DELETE", f"/sessions/{self._id}", None, allowed=() if lasted else {"unknown_session"})
        self._deleted, self._over = time.monotonic(), True

    def _check(self, position: int, answer: dict[str, Any], drafts: list[int] | None = None) -> None:
        tokens, total, reason = answer["tokens"], answer["total_tokens"], answer["finish_reason"]
        self._its_truth.compare(position, tokens, total, reason, self._name)
        if not tokens and reason is None:
            raise Fault(f"{self._name}: nothing came from {position} on, and the text goes on")
        if drafts is not None and answer["accepted_prefix_len"] != common_prefix(tokens, drafts):
            raise Fault(f"{self._name}: {answer['accepted_prefix_len']} of {drafts} were accepted for {tokens}")
        self._tally.tokens += len(tokens)
        self._known = max(self._known, total)

    def _check_event(self, truth: Truth, position: int, data: dict[str, Any]) -> int:
        """Tokens of a stream that has come to `position`: where it is then."""
        if data["position"] != position:
            raise Fault(f"{self._name}: a stream went on at {data['position']}, not at {position}")
        end = position + len(data["tokens"])
        truth.compare(position, data["tokens"], end, truth.ending(end), self._name)
        self._tally.tokens += len(data["tokens"])
        return end

    def _check_text(self, truth: Truth, body: dict[str, Any]) -> None:
        total = truth.prompt_len + body["generated_tokens"]
        truth.compare(truth.prompt_len, body["token_ids"], total, body["finish_reason"], self._name)
        if body["finish_reason"] is None:
            raise Fault(f"{self._name}: a text without an end was called whole")
        self._tally.tokens += len(body["token_ids"])

    @property
    def _its_truth(self) -> Truth:
        assert self._truth is not None, "the session was not opened"
        return self._truth

    def _drafts(self, rng: random.Random, position: int, length: int | None = None) -> list[int]:
        """A guess: the truth, now and then with a mistake in it."""
        length = rng.choice([0, 1, 2, 4, 4, 8]) if length is None else length
        drafts = self._its_truth.between(position, position + length)
        drafts += [rng.randrange(256) for _ in range(length - len(drafts))]
        for at in range(length):
            if rng.random() < 0.15:
                drafts[at] = rng.randrange(256)
        return drafts

    def _opening_body(self) -> dict[str, Any]:
        return self._prefill if self._id != self._name else self._prefill | {"session_id": self._id}

    def _prompt_ids(self) -> list[int]:
        given: list[int] | None = self._prefill.get("prompt_ids")
        return self._soak.model.vocabulary.encode(self._prefill["prompt"]) if given is None else given
