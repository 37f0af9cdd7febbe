"""How long and how many responses are kept, and whose."""

from typing import Any

from gateway.openai_api.messages.conversation import ChatMessage
from gateway.openai_api.responses import endpoints as store
from gateway.openai_api.responses.endpoints import Kept, ResponseStore
from gateway.openai_api.responses.replies import ResponseObject


class Clock:
    """Seconds that pass as told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _kept(id: str, characters: int = 1) -> Kept:
    response: Any = ResponseObject.model_construct
    return Kept(response(id=id), [ChatMessage(role="user", content="x" * characters)])


def test_a_response_is_its_clients_alone() -> None:
    kept = ResponseStore(Clock())
    kept.keep("a", _kept("1"))
    assert kept.find("a", "1") is not None and kept.find("b", "1") is None
    assert not kept.delete("b", "1") and kept.delete("a", "1") and not kept.delete("a", "1")


def test_it_is_forgotten_after_its_time() -> None:
    clock = Clock()
    kept = ResponseStore(clock)
    kept.keep("a", _kept("1"))
    clock.now = store.SECONDS
    assert kept.find("a", "1") is not None
    clock.now += 1.0
    assert kept.find("a", "1") is None


def test_the_oldest_of_a_client_make_room() -> None:
    kept = ResponseStore(Clock())
    kept.keep("b", _kept("b"))
    for at in range(store.MOST + 1):
        kept.keep("a", _kept(str(at)))
    assert kept.find("a", "0") is None and kept.find("a", "1") is not None and kept.find("b", "b") is not None
    kept.keep("a", _kept("long", store.MOST_CHARACTERS - 1000))
    assert kept.find("a", "long") is not None and kept.find("a", "1") is None
    kept.keep("a", _kept("too long", store.MOST_CHARACTERS))
    assert kept.find("a", "too long") is None and kept.find("a", "long") is not None


def test_all_clients_share_a_bound() -> None:
    kept = ResponseStore(Clock())
    size = store.MOST_CHARACTERS - 1000
    clients = range(store.MOST_OF_ALL // size + 1)
    message = _kept("", size).messages
    for client in clients:
        kept.keep(client, Kept(_kept(str(client)).response, message))
    assert kept.find(0, "0") is None and kept.find(clients[-1], str(clients[-1])) is not None
