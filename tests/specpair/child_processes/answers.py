"""A child process for the tests of `Worker`."""

import os
import time
from pathlib import Path
from typing import Any

from specpair.child_processes.worker import serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"hang": path}:
            if path:
                Path(path).touch()
            time.sleep(60)
        case {"sleep": seconds}:
            time.sleep(seconds)
        case {"exit": status}:
            os._exit(status)
        case {"bytes": count}:
            return {"bytes": len(bytearray(count))}
    return {**request, "pid": os.getpid()}


if __name__ == "__main__":
    serve(answer)
