"""Indexes folders in a process of its own, with whatever time others leave.

    python -m specpair.corpus VOCABULARY [STORE ROOT …]

`VOCABULARY` is a file that `specpair.corpus.indexing` wrote. Standard output gets nothing.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from specpair.corpus.indexing import bring_up_to_date, read_encoder
from specpair.corpus.store import Store


def _give_way() -> None:
    """Let every other process go first."""
    with suppress(AttributeError, OSError):
        os.nice(19)
    with suppress(AttributeError, OSError):  # Linux: only where a core has nothing else to do
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    _give_way()
    vocabulary, *pairs = sys.argv[1:]
    encode = read_encoder(Path(vocabulary))
    for store, root in zip(pairs[::2], pairs[1::2], strict=True):
        bring_up_to_date(Store(Path(store)), Path(root), encode)


if __name__ == "__main__":
    main()
