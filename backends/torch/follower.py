"""The program of a follower process, which holds a part of a model and runs what its leader sends."""

import os
import pickle
import queue
import sys
import threading
from typing import Any

from backends.base import first_line

# As in `follower_team`, whose import would take seconds, during which this process would not notice the leader's end.
STARTED = b"."

_Messages = queue.SimpleQueue[tuple[Any, ...]]


def main() -> None:
    """Serve until the leader closes the pipe. The process then exits at once, since it has nothing to save."""
    replies = os.dup(1)
    os.dup2(2, 1)  # keeps the output of libraries out of the replies
    messages: _Messages = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    try:
        _follow(messages, replies)
    except BaseException as error:  # any type: the leader reports it
        try:
            os.write(replies, first_line(error).encode()[:4000])
        finally:
            os._exit(1)


def _listen(messages: _Messages) -> None:
    """Receive the leader's messages in a thread of its own: this process ends with its leader even during a pass."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _follow(messages: _Messages, replies: int) -> None:
    """Load a part of the model, then run every message. `replies`: file descriptor of the pipe to the leader."""
    from backends.torch.tensor_parallel import Part, open_store

    number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port, *bound = map(int, sys.argv[1:])
    store = open_store(port, size, *bound)
    os.write(replies, STARTED)
    _, options, compiler = messages.get()
    part = Part(number, store, options, compiler=compiler, has_top_logits=False)  # the leader selects them
    while True:
        verb, *arguments = messages.get()
        part.follow(verb, arguments)


if __name__ == "__main__":
    main()
