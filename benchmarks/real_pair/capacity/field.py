"""Server-side drafting as the best of the field has it: the draft model drafts for all texts in the same passes.

Ours (mode fused) writes texts in such rounds, too, and chooses lengths as it goes. A round: as many passes of the draft
model as a draft has tokens, each for all texts, then a pass of the target that judges all drafts and reads what fits of
new prompts. All rounds have drafts of one length. Nothing but passes takes time, and no draft model reads an accepted
token again.
"""

from benchmarks.real_pair.capacity.crowd import Crowd, Writing
from benchmarks.real_pair.machines import Setting
from simulator.costs.cost import SequencePass


class _Text:
    """A text under way."""

    def __init__(self, writing: Writing) -> None:
        self.writing, self.at = writing, writing.begins
        self.prompt = len(writing.piece.text.prompt) + writing.begins
        self.unread = self.prompt

    @property
    def length(self) -> int:
        return len(self.writing.piece.text.prompt) + self.at

    def brings(self, drafts: int) -> int:
        """Tokens of a round with so many draft tokens."""
        ahead = self.writing.piece.agrees[self.at :]
        accepted = next((at for at, agrees in enumerate(ahead[:drafts]) if not agrees), min(drafts, len(ahead)))
        return min(accepted + 1, len(ahead))


def write(crowd: Crowd, setting: Setting, drafts: int, chunk: int) -> None:
    """Have the crowd's texts written in rounds of `drafts` draft tokens. `chunk`: prompt tokens of a pass, at most."""
    target, draft, now = setting.target.cost, setting.same_box, 0.0
    starts, texts = crowd.starts()[::-1], list[_Text]()
    while not crowd.done:
        while starts and (not texts or starts[-1] <= now):
            now = max(now, starts.pop())
            texts.append(_Text(crowd.next()))
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
            crowd.learnt(text.writing, tokens, now)
        texts = [_Text(crowd.next()) if text.writing.over else text for text in texts]
