"""The program of a follower process, which holds a part of a model and runs what its leader sends.

It ends in one of two ways. Told "end", it leaves the process group, waits until its leader has left, too (the end of
the pipe), and exits as any program does, so that the runtime of its device is closed. When the pipe ends without that
word, the leader has died or has given up, and this process exits at once: nobody waits for it, and its group is broken.
"""

import os
import pickle
import queue
import sys
import threading
import time
from typing import Any

from specpair.engines.errors import first_line

# As in `follower_team`, whose import would take seconds, during which this process would not notice the leader's end.
STARTED = b"."
END = "end"
_GRACE = 10.0  # seconds that an orderly end may take after the end of the pipe

_Messages = queue.SimpleQueue[tuple[Any, ...]]


def main() -> None:
    """Serve until the leader sends "end" or closes the pipe."""
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
    verb = None
    try:
        while True:
            message = pickle.load(sys.stdin.buffer)
            verb = message[0]
            messages.put(message)
    finally:
        if verb != END:
            os._exit(0)
        messages.put(())
        time.sleep(_GRACE)
        os._exit(1)


def _follow(messages: _Messages, replies: int) -> None:
    """Load a part of the model, then run every message. `replies`: file descriptor of the pipe to the leader."""
    import torch.distributed as dist

    from backends.torch.tensor_parallel import ModelShard, open_store

    number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port, *bound = map(int, sys.argv[1:])
    store = open_store(port, size, *bound)
    os.write(replies, STARTED)
    _, options, compiler = messages.get()
    part = ModelShard(number, store, options, compiler=compiler, has_top_logits=False)  # the leader selects them
    while (message := messages.get())[0] != END:
        part.follow(message[0], message[1:])
    part.close()
    dist.destroy_process_group()
    messages.get()  # the end of the pipe


if __name__ == "__main__":
    main()
