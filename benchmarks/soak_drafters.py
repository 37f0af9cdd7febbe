"""Drafters that connect, crash, stall and come back; what they do is the seed's choice, what they hear is checked.

Each drafter lives one life after the other. A life is one session: it is opened, and then step after step something is
done with it, until it is deleted or its drafter vanishes. Every step draws from a generator of its own, seeded with
drafter, life and step, so that no timing changes what is chosen next.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

from benchmarks.soak_caller import CONTEXT, MAX_BODY, MAX_DRAFTS, Soak, encoded
from benchmarks.soak_openings import opening
from benchmarks.soak_session import PROMPTLY, Checked
from benchmarks.soak_truth import Fault, Truth
from benchmarks.soak_wire import request
from speculation.sampling.sampling import Sampling


async def drafter(soak: Soak, number: int) -> None:
    """Live until the soak is over. Whatever the verifier does wrong is noted."""
    life = 0
    while not soak.over.is_set():
        soak.tally.happened["lives"] += 1
        try:
            await Life(soak, number, life).live()
        except* (Fault, OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as group:
            soak.tally.faults += [f"drafter {number}, life {life}: {fault!r}" for fault in _leaves(group)]
        life += 1


class Life(Checked):
    """What one drafter does with one session."""

    async def live(self) -> None:
        with closing(self):
            rng = self._rng("birth")
            if self._id is not None and rng.random() < 0.1:
                self.count("crashed while opening")
                await self.cut(rng, "POST", "/prefill", self._opening_body())
            await self._open()
            for step in range(rng.randint(3, 40)):
                if self._over or self._soak.over.is_set():
                    break
                if self._lost:
                    await self._come_back()
                    continue
                rng = self._rng(step)
                [act] = rng.choices(*_ACTS)
                await act(self, rng)
                await self._soak.pause(rng.uniform(0.0, 0.05))
            if self._over or self._soak.over.is_set() or self._rng("death").random() < 0.3:
                self.count("vanished")
            else:
                await self._delete()

    async def _guess(self, rng: random.Random) -> None:
        """One guess, from what is known."""
        self.count("guesses")
        await self._verify(self._known, self._drafts(rng, self._known))

    async def _guess_without_a_name(self, rng: random.Random) -> None:
        """A guess for "my latest session", which goes on from its cursor."""
        allowed = {"self_continue_refused"} if self._prefill["self_continue"] else set()
        drafts = self._drafts(rng, self._known)
        body = await self.ask("POST", "/verify", {"draft_tokens": drafts}, allowed=allowed, named=False)
        if body is not None:
            if allowed:
                raise Fault(f"{self._name}: an implicit guess for a session that goes on by itself was taken")
            self._check(body["position"], body, drafts)

    async def _flight(self, rng: random.Random) -> None:
        """Several guesses at once, each built on the one before or beginning like it."""
        self.count("flights")
        position = self._known
        path = self._drafts(rng, position, length=MAX_DRAFTS)
        cuts = sorted(rng.sample(range(MAX_DRAFTS + 1), rng.randint(2, 6)))
        if rng.random() < 0.3:
            rng.shuffle(cuts)
        await _together(*(self._verify(position, path[:cut]) for cut in cuts))

    async def _flood(self, rng: random.Random) -> None:
        """More guesses at once than one session may have waiting."""
        self.count("floods")
        position = self._known
        await _together(*(self._verify(position, self._drafts(rng, position)) for _ in range(24)))

    async def _repeat(self, rng: random.Random) -> None:
        """The same guess again, at the same time or later."""
        self.count("repeats")
        position, drafts = self._known, self._drafts(rng, self._known)
        await _together(self._verify(position, drafts), self._verify(position, drafts))
        await self._verify(position, drafts)

    async def _stale(self, rng: random.Random) -> None:
        """A guess at what has long been committed."""
        position = rng.randint(self._its_truth.prompt_len, self._known)
        await self._verify(position, self._drafts(rng, position))

    async def _listed(self, rng: random.Random) -> None:
        """The list of sessions holds one like this, and nobody's id: the verifier has no key."""
        must, heard, known, truth = self._memory.lasts, self._memory.heard, self._known, self._its_truth
        body = await self.ask("GET", "/sessions", None, named=False)
        listed = (body or {})["sessions"]
        like = [each for each in listed if each["prompt_len"] == truth.prompt_len and each["total_tokens"] >= known]
        if must(heard) and not like:
            raise Fault(f"{self._name} is not listed")
        if any("session_id" in each for each in listed):
            raise Fault(f"{self._name} is told the ids of others")

    async def _follow(self, rng: random.Random) -> None:
        """Read the stream of tokens while guessing; to the end, slowly, or until it is dropped."""
        fate = rng.choice(["read", "read slowly", "reset", "hung up"])
        self.count(f"streams {fate}")
        events, delay, seconds = rng.randint(1, 12), rng.uniform(0.0, 0.2), rng.uniform(0.5, 4.0)
        count, guesses = rng.randint(1, 8), random.Random(rng.random())
        start = rng.randint(self._its_truth.prompt_len, self._known)
        await _together(self._read_stream(start, fate, events, delay, seconds), self._several(guesses, count))

    async def _several(self, rng: random.Random, count: int) -> None:
        for _ in range(count):
            await self._verify(self._known, self._drafts(rng, self._known))
            await self._soak.pause(rng.uniform(0.0, 0.05))

    async def _delete_in_flight(self, rng: random.Random) -> None:
        """Delete the session while it is guessed at and streamed."""
        self.count("deleted in flight")
        delay, start = rng.uniform(0.0, 0.05), rng.randint(self._its_truth.prompt_len, self._known)
        guesses = [self._verify(self._known, self._drafts(rng, self._known)) for _ in range(3)]

        async def delete() -> None:
            await self._soak.pause(delay)
            await self._delete()

        await _together(delete(), self._read_stream(start, "read", 0, 0.0, 4 * PROMPTLY), *guesses)

    async def _crash(self, rng: random.Random) -> None:
        """Break off in the middle of a guess; then be away for a moment, and perhaps come back."""
        self.count("crashes")
        drafts = self._drafts(rng, self._known)
        for _ in range(rng.randint(1, 3)):
            await self.cut(rng, "POST", "/verify", {"position": self._known, "draft_tokens": drafts})
        if rng.random() < 0.5:
            await self._soak.pause(rng.uniform(0.0, 1.0))
            self.count("returns")
            await self._come_back()
        else:
            self._over = True

    async def _stall(self, rng: random.Random) -> None:
        """Silence, for longer than a session is remembered now and then."""
        self.count("stalls")
        long = rng.random() < 0.15
        await self._soak.pause(self._soak.ttl * rng.uniform(0.9, 1.5) if long else rng.uniform(0.3, 3.0))
        if rng.random() < 0.5 and not self._soak.over.is_set():
            self.count("returns")
            await self._come_back()

    async def _come_back(self) -> None:
        """Repeat the prefill, where the session has a name that was chosen here."""
        if self._id == self._name:
            self._lost = False
            await self._open()
        else:
            self._over = self._lost

    async def _generate(self, rng: random.Random) -> None:
        """Plain decoding on the server, of a text of its own; to the end or broken off."""
        options = opening(self._soak, rng) | {"seed": rng.randrange(1000)}
        del options["self_continue"]
        prompt = options.get("prompt_ids") or self._soak.model.vocabulary.encode(options["prompt"])
        sampling = Sampling(options["seed"], options["temperature"], options["top_k"], options["top_p"])
        truth = Truth(self._soak.model, CONTEXT, prompt, sampling, options.get("max_tokens"))
        how = rng.choice(["whole", "streamed", "cut"])
        self.count(f"texts {how}")
        if how == "whole":
            body = await self.ask("POST", "/generate", options, named=False)
            if body is not None:
                self._check_text(truth, body)
            return
        left = rng.randint(0, 20) if how == "cut" else None
        sent = request("POST", "/generate", encoded(options | {"stream": True}), self._headers)
        position, ended = truth.prompt_len, False
        async with self.connection() as wire:
            reply = await self.begin_stream(wire, sent)
            if reply is not None:
                self.tell_error(reply.code, (), reply.status)
                return
            async for name, data in wire.events():
                if name == "tokens":
                    position = self._check_event(truth, position, data)
                elif name == "end":
                    ended = True
                    self._check_text(truth, data)
                elif name == "error":
                    self.tell_error(data["error"]["code"], ())
                    return
                if left is not None and (left := left - 1) < 0:
                    wire.reset() if rng.random() < 0.5 else wire.hang_up()
                    return
        if not ended:
            raise Fault(f"{self._name}: a text had no end")

    async def _junk(self, rng: random.Random) -> None:
        """Something that must be refused, by its own name."""
        self.count("junk")
        at, truth = self._known, self._its_truth
        guess = {"position": at, "draft_tokens": [1]}
        bad_id, beyond = rng.choice([258, 70000, -1, 2**31]), truth.limit + rng.randint(1, 99)
        cases: list[tuple[str, str, dict[str, Any] | bytes | None, str]] = [
            ("POST", "/verify", guess | {"draft_tokens": [7, bad_id]}, "token_out_of_range"),
            ("POST", "/verify", guess | {"position": truth.prompt_len - 1}, "position_inside_prompt"),
            ("POST", "/verify", guess | {"position": beyond}, "position_beyond_committed"),
            ("POST", "/verify", guess | {"positon": at}, "invalid_request"),
            ("POST", "/verify", {"position": at}, "invalid_request"),
            ("POST", "/verify", b'{"position": 1, "dra', "invalid_request"),
            ("POST", "/verify", b"\xff\xfe\x00", "invalid_request"),
            ("POST", "/verify", guess | {"session_id": "another"}, "session_mismatch"),
            ("POST", "/prefill", {"prompt_ids": [], "session_id": self._id}, "empty_prompt"),
            ("POST", "/prefill", {"prompt_ids": [1] * CONTEXT, "session_id": f"{self._id}-x"}, "prompt_too_long"),
            ("GET", "/verify", None, "method_not_allowed"),
            ("GET", f"/sessions/{self._id}/nothing", None, "not_found"),
            ("DELETE", f"/sessions/{self._id}-none", None, "unknown_session"),
            ("GET", f"/sessions/{self._id}/stream?from={beyond}", None, "position_beyond_committed"),
            ("GET", f"/sessions/{self._id}/stream?from=x", None, "invalid_request"),
        ]
        method, path, body, code = rng.choice(cases)
        allowed = {code, "session_conflict"} if code == "empty_prompt" else {code}  # the id is in use
        if await self.ask(method, path, body, allowed=allowed, named=path != "/prefill") is not None:
            raise Fault(f"{self._name}: {method} {path} with {body!r} was taken, not {code}")

    async def _too_long(self, rng: random.Random) -> None:
        """More drafts than are judged at once: refused, unless the record answers."""
        drafts = self._drafts(rng, self._known, length=MAX_DRAFTS + rng.randint(1, 40))
        await self._verify(self._known, drafts, allowed={"too_many_drafts"})

    async def _too_large(self, rng: random.Random) -> None:
        """A body announced that is too large, of which nothing comes."""
        async with self.connection() as wire:
            said = {**self._headers, "Content-Length": str(MAX_BODY + rng.randint(1, 10**9))}
            reply = await wire.ask(request("POST", rng.choice(["/verify", "/prefill", "/generate"]), None, said))
            if reply.code != "body_too_large":
                raise Fault(f"{self._name}: a huge body got {reply}")
            self._tally.errors["body_too_large"] += 1
            wire.reset()

    async def _conflict(self, rng: random.Random) -> None:
        """Another prompt under a name that is taken."""
        told = self._memory.heard
        body = {"prompt_ids": [1, 2, rng.randrange(256)], "session_id": self._id}
        if await self.ask("POST", "/prefill", body, allowed={"session_conflict"}, named=False) is not None:
            if self._memory.lasts(told):
                raise Fault(f"{self._name}: its session was taken over")
            await self._delete()


Act = Callable[[Life, random.Random], Awaitable[None]]
_WEIGHTS: dict[Act, int] = {
    Life._guess: 40,
    Life._flight: 12,
    Life._follow: 8,
    Life._stall: 8,
    Life._repeat: 6,
    Life._junk: 6,
    Life._crash: 5,
    Life._stale: 4,
    Life._generate: 4,
    Life._too_long: 2,
    Life._guess_without_a_name: 2,
    Life._delete_in_flight: 1,
    Life._flood: 1,
    Life._conflict: 1,
    Life._too_large: 1,
    Life._listed: 1,
}
_ACTS = (list(_WEIGHTS), list(_WEIGHTS.values()))


async def _together(*doing: Awaitable[None]) -> None:
    """Do all at once; what fails ends the others."""

    async def one(what: Awaitable[None]) -> None:
        await what

    async with asyncio.TaskGroup() as group:
        for what in doing:
            group.create_task(one(what))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for each in group.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]
