"""Clients take turns in a pool of threads."""

from functools import partial
from threading import Event

from verifier_server.generation.fair_pool import FairPool


def test_clients_take_turns_and_each_keeps_its_order() -> None:
    pool, started, free, done = FairPool(1, "test"), Event(), Event(), list[str]()

    def hold() -> None:
        started.set()
        free.wait()

    pool.submit("a", hold)
    started.wait()
    for each in ("a1", "a2", "a3", "b1", "b2", "c1"):
        pool.submit(each[0], partial(done.append, each))
    free.set()
    pool.shutdown()
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]
