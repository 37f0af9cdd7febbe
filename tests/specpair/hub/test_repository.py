"""What the hub is asked, and what its refusals become."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from specpair.hub.errors import AccessDenied, HubError, NotFound, Offline, RateLimited, Unreachable
from specpair.hub.repository import PAUSES, Hub
from tests.stand_ins.hub import COMMIT, TOKEN, HubStandIn, serving

FILES = {f"Toy-Q{number}_0.gguf": bytes([number]) * 1000 for number in range(2, 9)} | {"config.json": b"{}"}


@pytest.fixture
def stand_in() -> Iterator[HubStandIn]:
    with serving({"u/toy": FILES}) as hub:
        yield hub


def _hub(stand_in: HubStandIn, cache: Path, token: str | bool = False) -> tuple[Hub, list[float]]:
    """A client, and the seconds that it waits."""
    waits: list[float] = []
    return Hub(stand_in.address, cache, token, wait=waits.append), waits


def test_all_pages_of_a_listing_are_read_in_the_hubs_order(stand_in: HubStandIn, tmp_path: Path) -> None:
    listing = _hub(stand_in, tmp_path)[0].listing("u/toy")
    assert (listing.commit, listing.paths) == (COMMIT, list(FILES))
    sizes = {file.path: (file.size, len(file.blob) == 64) for file in listing.files}
    assert sizes == {path: (len(content), path.endswith(".gguf")) for path, content in FILES.items()}
    assert stand_in.counted("/tree/") == 3 and len(stand_in.asked) == 4


@pytest.mark.parametrize("ranges", [True, False])
def test_a_range_is_read_and_the_token_stays_with_the_hub(stand_in: HubStandIn, tmp_path: Path, ranges: bool) -> None:
    stand_in.ranges = ranges
    stand_in.repositories["u/toy"]["Toy-Q2_0.gguf"] = content = bytes(range(250)) * 4
    hub, _ = _hub(stand_in, tmp_path, TOKEN)
    listing = hub.listing("u/toy")
    file = listing.files[0]
    assert hub.read(listing, file, 100, 300) == content[100:400]
    assert hub.read(listing, file, 990, 300) == content[990:]
    assert hub.read(listing, file, 1000, 300) == b""
    assert {(each.host, each.token) for each in stand_in.asked} == {("127.0.0.1", TOKEN), ("localhost", None)}


def test_a_gated_repository_opens_with_a_token(stand_in: HubStandIn, tmp_path: Path) -> None:
    stand_in.gated.add("u/toy")
    for token in (False, "hf_wrong"):
        hub, waits = _hub(stand_in, tmp_path, token)
        listing = hub.listing("u/toy")
        with pytest.raises(AccessDenied) as caught:
            hub.read(listing, listing.files[0], 0, 4)
        assert f"accept its terms at {stand_in.address}/u/toy, then log in with `hf auth login`" in str(caught.value)
        assert waits == []
    assert _hub(stand_in, tmp_path, TOKEN)[0].read(listing, listing.files[0], 0, 4) == bytes([2] * 4)


@pytest.mark.parametrize(
    ("status", "headers", "error", "message"),
    [
        (
            401,
            {"X-Error-Code": "RepoNotFound"},
            NotFound,
            "has no model u/toy, or it is private: check how it is spelled",
        ),
        (401, {}, AccessDenied, "the hub refuses it (401): log in"),
        (403, {}, AccessDenied, "the hub refuses it (403): log in"),
        (404, {"X-Error-Code": "RevisionNotFound"}, NotFound, "has no u/toy (404)"),
        (429, {"Retry-After": "17"}, RateLimited, "wait 17 seconds, and try again"),
        (429, {"RateLimit": '"api";r=0;t=55'}, RateLimited, "wait 55 seconds, and try again"),
        (429, {}, RateLimited, "wait some minutes, and try again"),
        (418, {}, HubError, "answers 418"),
    ],
)
def test_a_refusal_says_what_to_do(
    stand_in: HubStandIn, tmp_path: Path, status: int, headers: dict[str, str], error: type[HubError], message: str
) -> None:
    stand_in.refusals = [(status, headers)]
    with pytest.raises(HubError) as caught:
        _hub(stand_in, tmp_path)[0].listing("u/toy")
    assert type(caught.value) is error and message in str(caught.value)
    assert len(stand_in.asked) == 1


def test_a_hub_that_fails_for_a_while_is_asked_again(stand_in: HubStandIn, tmp_path: Path) -> None:
    stand_in.refusals = [(503, {})] * 2
    hub, waits = _hub(stand_in, tmp_path)
    assert len(hub.listing("u/toy").files) == len(FILES) and waits == list(PAUSES[:2])
    stand_in.refusals = [(503, {})] * 9
    with pytest.raises(Unreachable, match="answers 503: try again later"):
        hub.listing("u/toy")
    assert len(stand_in.refusals) == 9 - len(PAUSES) - 1


def test_a_hub_out_of_reach_and_one_that_is_none_are_told(tmp_path: Path, stand_in: HubStandIn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    waits: list[float] = []
    with pytest.raises(Unreachable, match=f"u/toy: {address} does not answer, or was cut off"):
        Hub(address, tmp_path, False, wait=waits.append).listing("u/toy")
    assert waits == list(PAUSES)
    stand_in.commit = "../../etc"
    with pytest.raises(HubError, match="it is no listing"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")


@pytest.mark.parametrize("path", ["../up.gguf", "/etc/a.gguf", "a/../b.gguf", "a\\b.gguf"])
def test_a_listing_that_names_other_places_is_refused(stand_in: HubStandIn, tmp_path: Path, path: str) -> None:
    stand_in.repositories["u/toy"] = {path: b""}
    with pytest.raises(HubError, match="it is no listing"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")


def test_offline_mode_is_kept(stand_in: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Offline, match="u/toy is not in the cache, and HF_HUB_OFFLINE is set"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")
    assert stand_in.asked == []
