"""A process that holds a part of a model and runs what its leader tells it: `torch_team` starts it, and ends it."""

import os
import pickle
import queue
import sys
import threading
from typing import Any

from backends.base import first_line

HERE = b"."  # as in `torch_team`, which is not imported: that takes seconds, and the leader may be gone before

_Messages = queue.SimpleQueue[tuple[Any, ...]]


def main() -> None:
    """Serve until the leader closes the pipe. The end is abrupt: nothing here is to be kept."""
    replies = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not get among the replies
    messages: _Messages = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    try:
        _follow(messages, replies)
    except BaseException as error:  # whatever it is, the leader reports it
        try:
            os.write(replies, first_line(error).encode()[:4000])
        finally:
            os._exit(1)


def _listen(messages: _Messages) -> None:
    """Apart from what this process does otherwise, so that it ends with its leader even while it waits for others."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _follow(messages: _Messages, replies: int) -> None:
    from backends.torch.tensor_parallel import Part, open_store

    number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port, *bound = map(int, sys.argv[1:])
    store = open_store(port, size, *bound)
    os.write(replies, HERE)
    _, options, compiler = messages.get()
    part = Part(number, store, options, compiler=compiler)
    while True:
        verb, *arguments = messages.get()
        part.follow(verb, arguments)


if __name__ == "__main__":
    main()
