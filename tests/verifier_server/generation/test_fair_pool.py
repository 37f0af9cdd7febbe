"""The thread pool in which clients take turns."""

from functools import partial
from threading import Event

from verifier_server.generation.server_drafting import FairPool


def test_clients_take_turns_and_each_keeps_its_order() -> None:
    pool, started, unblock, done = FairPool(1), Event(), Event(), list[str]()

    def block() -> None:
        started.set()
        unblock.wait()

    pool.submit("a", block)
    started.wait()
    for each in ("a1", "a2", "a3", "b1", "b2", "c1"):
        pool.submit(each[0], partial(done.append, each))
    unblock.set()
    pool.shutdown()
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]
