"""Which of several verifiers a text goes to, by what was measured of each; names of several machines."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import pytest

from drafter_client.errors import BadUrl
from drafter_client.http.addresses import VerifierAddress, addresses_of
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Health
from drafter_client.http.verifiers import Verifiers
from specpair.protocol.errors import EngineError, Overloaded, RateLimited
from specpair.protocol.service_responses import ModelInfo
from tests.drafter_client.http.fake_transports import model_info

A, B, C = VerifierAddress("http://a:1"), VerifierAddress("http://b:1"), VerifierAddress("http://c:1")
IDENTITY = "0123456789abcdef-00000000"


class Fleet:
    """The state of verifiers that need no network, and the clock."""

    def __init__(self) -> None:
        self.health = {each: Health(True, identity=IDENTITY) for each in (A, B, C)}
        self.info = {each: model_info(identity=IDENTITY, pass_ms=[10.0, 20.0]) for each in (A, B, C)}
        self.now = 0.0
        self.notices: list[str] = []
        self._looked = threading.Condition()
        self._looks = dict.fromkeys(self.health, 0)

    def looked(self, address: VerifierAddress) -> Health:
        with self._looked:
            self._looks[address] += 1
            self._looked.notify_all()
        return self.health[address]

    def wait(self) -> None:
        """Return after a look at each that begins later than now."""
        with self._looked:
            due = {each: looks + 2 for each, looks in self._looks.items()}
            assert self._looked.wait_for(lambda: all(self._looks[each] >= looks for each, looks in due.items()), 20)


class Client:
    """What is used of a `VerifierClient`."""

    def __init__(self, fleet: Fleet, address: VerifierAddress) -> None:
        self.fleet, self.address, self.connection = fleet, address, self

    def another(self, address: VerifierAddress, *, alone: bool) -> "Client":
        return Client(self.fleet, address)

    def move_to(self, address: VerifierAddress) -> None:
        self.address = address

    def health(self) -> Health:
        return self.fleet.looked(self.address)

    def model(self) -> ModelInfo:
        return self.fleet.info[self.address]

    def connect(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr("drafter_client.http.verifiers.LOOK_PAUSE", 0.005)
    monkeypatch.setattr("drafter_client.http.retries.CHECK_PAUSE", 0.005)
    return Fleet()


@contextmanager
def known(fleet: Fleet) -> Iterator[tuple[Verifiers, Any]]:
    """The verifiers, when they are ready, and a client at A."""
    client = Client(fleet, A)
    with closing(Verifiers(cast(VerifierClient, client), [A, B, C], fleet.notices.append, lambda: fleet.now)) as found:
        found.wait_until_ready()
        yield found, client


def test_a_text_goes_to_the_one_with_the_least_load(fleet: Fleet) -> None:
    fleet.health[A] = Health(True, identity=IDENTITY, texts=3)
    fleet.health[B] = Health(True, identity=IDENTITY, texts=1)
    fleet.health[C] = Health(True, identity=IDENTITY, texts=1, waiting=4)
    with known(fleet) as (verifiers, _):
        assert verifiers.chosen() == B
        fleet.health[A] = Health(True, identity=IDENTITY)
        fleet.wait()
        assert verifiers.chosen() == A


def test_an_overloaded_one_is_left_out_for_as_long_as_it_says(fleet: Fleet) -> None:
    with known(fleet) as (verifiers, client):
        assert verifiers.moved(client, Overloaded("full", retry_after=7)) and client.address != A
        assert all(verifiers.chosen() != A for _ in range(4))
        fleet.now = 7.0
        fleet.health[B] = fleet.health[C] = Health(True, identity=IDENTITY, overloaded=True)
        fleet.wait()
        assert verifiers.chosen() == A
    assert fleet.notices == []


def test_the_limit_of_a_key_is_not_evaded(fleet: Fleet) -> None:
    with known(fleet) as (verifiers, client):
        assert not verifiers.moved(client, RateLimited("too many", retry_after=7)) and client.address == A


def test_one_that_has_failed_less_often_is_taken_first(fleet: Fleet) -> None:
    """Else a text whose verifier is back first would fail there again, without having been tried at the other one."""
    fleet.health[C] = Health(False, "nothing answers")
    with known(fleet) as (verifiers, client):
        fleet.wait()
        assert verifiers.moved(client, EngineError("broken")) and client.address == B
        client.move_to(A)
        fleet.wait()
        assert verifiers.moved(client, EngineError("broken")) and client.address == B
        assert not verifiers.moved(client, EngineError("broken"))
        fleet.now = 10.0
        fleet.wait()
        client.move_to(A)
        assert verifiers.look(client).ready and client.address == B


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def know(*hosts: str) -> None:
        def looked_up(host: str, *_: object, **__: object) -> list[Any]:
            family = {False: socket.AF_INET, True: socket.AF_INET6}
            return [(family[":" in each], socket.SOCK_STREAM, 6, "", (each, 8000)) for each in hosts]

        monkeypatch.setattr("socket.getaddrinfo", looked_up)

    return know


def test_a_name_with_several_addresses_is_several_verifiers(names: Callable[..., None]) -> None:
    names("10.0.0.1", "10.0.0.2", "10.0.0.1")
    found = addresses_of("http://verifiers:8000", direct=True)
    assert [str(each) for each in found] == ["http://verifiers:8000 (10.0.0.1)", "http://verifiers:8000 (10.0.0.2)"]
    assert addresses_of("http://verifiers:8000", direct=False) == [VerifierAddress("http://verifiers:8000")]


@pytest.mark.parametrize("hosts", [("10.0.0.1",), ("::1", "127.0.0.1")])
def test_a_machine_with_two_families_is_one(names: Callable[..., None], hosts: tuple[str, ...]) -> None:
    names(*hosts)
    assert addresses_of("bigbox:8000", direct=True) == [VerifierAddress("bigbox:8000")]


def test_a_list_of_urls() -> None:
    assert addresses_of("127.0.0.1:1, 127.0.0.1:2,127.0.0.1:1", direct=True) == [
        VerifierAddress("127.0.0.1:1"),
        VerifierAddress("127.0.0.1:2"),
    ]
    with pytest.raises(BadUrl, match="is not the address of a verifier"):
        addresses_of("127.0.0.1:1,ftp://b", direct=True)
