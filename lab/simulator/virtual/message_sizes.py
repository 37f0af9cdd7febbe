"""How many bytes the messages between a drafter and a verifier have, by the number of their tokens.

The sizes are those of the messages that ship, with the heads of HTTP (tests/lab/simulator/virtual/test_message_sizes.py
compares). As in the drafter's `Traffic`, what carries these bytes is left out: the framing of chunks, TLS, and some 40
bytes for each packet of TCP.
"""

from typing import Final, NamedTuple

DIGITS = 4  # of a token id: 3.4 were measured with the 152,000 ids of Qwen2.5, 4.5 with the 262,000 of Gemma 3


class MessageSize(NamedTuple):
    """Bytes of a kind of message. `ids`: how often it has the id of each token. `more`: further bytes of a token."""

    empty: int  # of one without tokens, the head included
    ids: int
    more: int = 0

    def of(self, tokens: int, digits: int = DIGITS) -> float:
        """Of a message with so many tokens, whose ids have a number of `digits`."""
        return float(self.empty + tokens * (self.ids * (digits + 1) + self.more))


class SIZES:
    """The sizes of all messages."""

    prefill: Final = MessageSize(344, 1)  # tokens of the prompt, and of the output that the device has
    prefill_reply: Final = MessageSize(960, 1)  # tokens of the prompt, which the reply repeats
    prefill_streamed: Final = MessageSize(1051, 1)  # the same as the first event of the session's stream
    verify: Final = MessageSize(257, 1)  # tokens of the draft
    verify_tree: Final = MessageSize(275, 1, 2)  # the same where it is a tree
    verify_reply: Final = MessageSize(408, 2, 1)  # committed tokens
    verify_tree_reply: Final = MessageSize(426, 2, 3)
    streamed: Final = MessageSize(75, 1, 1)  # tokens of an event of a session's stream
    generate: Final = MessageSize(319, 1)  # tokens as of `prefill`
    generated: Final = MessageSize(73, 1, 5)  # tokens of an event of `/generate`, with four characters of text for each
    generate_opened: Final = 536.0  # the head of the stream of `/generate`, and its first event
    refusal: Final = 326.0  # by an overloaded verifier
    listen: Final = 27.0  # of the header of a prefill that asks for the session's stream behind the reply
    release: Final = 220.0  # of a request that releases a session
    release_reply: Final = 222.0
    probe: Final = 106.0  # of a request to `/health`, which measures the link
    probe_reply: Final = 294.0
