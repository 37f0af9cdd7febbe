"""Server-side drafting as the best of the field has it: the draft model drafts for all texts in the same passes.

Ours (mode fused) writes texts in such rounds, too, and chooses lengths as it goes. A round: as many passes of the draft
model as a draft has tokens, each for all texts, then a pass of the target that judges all drafts and reads what fits of
new prompts. All rounds have drafts of one length. Nothing takes time but passes and, between two texts of a client, the
link; no draft model reads an accepted token again.
"""

from heapq import heapify, heappop, heappush
from itertools import count

from lab.benchmarks.real_pair.capacity.crowd import Client, Crowd
from lab.simulator.costs.cost import PassCost, SequencePass


class _Text:
    """A text under way."""

    def __init__(self, client: Client) -> None:
        self.client, self._writing = client, client.next()
        self.at = self._writing.begins
        self.prompt = len(self._writing.piece.text.prompt) + self.at
        self.unread = self.prompt

    @property
    def length(self) -> int:
        return len(self._writing.piece.text.prompt) + self.at

    def brings(self, drafts: int) -> int:
        """Tokens of a round with so many draft tokens."""
        ahead = self._writing.piece.agrees[self.at :]
        accepted = next((at for at, agrees in enumerate(ahead[:drafts]) if not agrees), min(drafts, len(ahead)))
        return min(accepted + 1, len(ahead))


def write(crowd: Crowd, target: PassCost, draft: PassCost, rtt: float, drafts: int, chunk: int) -> None:
    """Have the crowd's texts written in rounds of `drafts` draft tokens.

    `target`, `draft`: of the passes of both models.
    `rtt`: seconds of the link's round trip.
    `chunk`: prompt tokens of a pass, at most.
    """
    now, order, texts = 0.0, count(), list[_Text]()
    begins = [(each.starts, next(order), each) for each in crowd.clients]  # clients whose next text comes, and when
    heapify(begins)
    while not crowd.done:
        while begins and (not texts or begins[0][0] <= now):
            at, _, client = heappop(begins)
            now = max(now, at)
            texts.append(_Text(client))
        reads, writes, room = list[SequencePass](), list[_Text](), chunk
        brought: list[tuple[_Text, int]] = []
        for text in texts:
            if not text.unread:
                writes.append(text)
                brought.append((text, text.brings(drafts)))
            elif part := min(text.unread, room):
                reads.append((part, text.prompt - text.unread))
                room, text.unread = room - part, text.unread - part
                brought += [(text, 1)] * (not text.unread)
        began = now
        for step in range(drafts):
            now += draft.seconds([*((1, each.length + step) for each in writes), *(reads if not step else ())])
        batch = [*((drafts + 1, each.length) for each in writes), *reads]
        now += target.seconds(batch)
        crowd.passed(began, sum(new for new, _ in batch), len(writes))
        for text, tokens in brought:
            text.at += tokens
            if text.client.learnt(tokens, now):
                texts.remove(text)
                heappush(begins, (now + rtt, next(order), text.client))
