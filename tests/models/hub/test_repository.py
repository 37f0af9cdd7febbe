"""What the hub is asked, and what its refusals become."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from models.errors import AccessDenied, HubError, HubRateLimited, HubUnreachable, ModelNotFound, Offline
from models.hub import repository
from models.hub.cache import HubFile
from models.hub.repository import MOST_BYTES, MOST_PAGES, MOST_REDIRECTS, PATIENCE, PAUSES, Hub
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
            ModelNotFound,
            "has no model u/toy, or it is private: check how it is spelled",
        ),
        (401, {}, AccessDenied, "the hub refuses it (401): log in"),
        (403, {}, AccessDenied, "the hub refuses it (403): log in"),
        (404, {"X-Error-Code": "RevisionNotFound"}, ModelNotFound, "has no u/toy (404)"),
        (429, {"Retry-After": "3600"}, HubRateLimited, "wait 3600 seconds, and try again"),
        (429, {"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"}, HubRateLimited, "seconds, and try again"),
        (
            429,
            {"Retry-After": "\xb2", "RateLimit": '"api";r=0;t=299'},
            HubRateLimited,
            "wait 299 seconds, and try again",
        ),
        (429, {"Retry-After": "9" * 5000}, HubRateLimited, "wait some minutes, and try again"),
        (429, {}, HubRateLimited, "wait some minutes, and try again"),
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
    with pytest.raises(HubUnreachable, match="answers 503: try again later"):
        hub.listing("u/toy")
    assert len(stand_in.refusals) == 9 - len(PAUSES) - 1


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"Retry-After": "2"}, 2.0),
        ({"Retry-After": "0"}, PAUSES[0]),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, PAUSES[0]),
        ({"RateLimit": '"api";r=0;t=55'}, 55.0),
    ],
)
def test_a_short_wait_for_a_hub_with_too_many_requests_is_waited(
    stand_in: HubStandIn, tmp_path: Path, headers: dict[str, str], waited: float
) -> None:
    stand_in.refusals = [(429, headers)]
    hub, waits = _hub(stand_in, tmp_path)
    assert len(hub.listing("u/toy").files) == len(FILES) and waits == [waited]
    stand_in.refusals = [(429, headers)] * 9
    with pytest.raises(HubRateLimited):
        hub.listing("u/toy")
    assert sum(waits[1:]) <= PATIENCE and len(waits) <= 1 + len(PAUSES)


_REVISION: tuple[int, dict[str, str], bytes] = (200, {}, json.dumps({"sha": COMMIT}).encode())
_PAGE = (200, {"Link": '<http://elsewhere.invalid/tree?cursor=1>; rel="next"'}, b"[]")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(302, {"Location": "/a"}, b"")] * (MOST_REDIRECTS + 1), f"redirects more than {MOST_REDIRECTS} times"),
        ([(302, {"Location": "http://169.254.169.254/a"}, b"")], "redirects to http://169.254.169.254, where no file"),
        ([(302, {"Location": "ftp://127.0.0.1/a"}, b"")], "redirects to ftp://127.0.0.1, where no file is fetched"),
        ([(200, {}, b"[" * (MOST_BYTES + 1))], "answers with more than 32 MiB"),
        ([(200, {}, b"[" * 100_000)], "answers without JSON"),
        ([(200, {}, b'{"sha": 5}')], "does not answer like a model hub"),
        ([(200, {}, b'"sha"')], "does not answer like a model hub"),
        ([_REVISION, (200, {}, b"[5]")], "does not answer like a model hub"),
        ([_REVISION, (200, {}, b'[{"type": "file", "path": "a", "size": 1, "lfs": "x"}]')], "not answer like a model"),
        ([_REVISION, (200, {"Link": '<http://[/>; rel="next"'}, b"[]")], "does not answer like a model hub"),
        ([_REVISION, *([_PAGE] * MOST_PAGES)], f"lists 0 files on {MOST_PAGES} pages, and more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_hub_answers_is_bounded(
    stand_in: HubStandIn, tmp_path: Path, answers: list[tuple[int, dict[str, str], bytes]], message: str
) -> None:
    stand_in.answers = list(answers)
    with pytest.raises(HubError, match=message):
        _hub(stand_in, tmp_path)[0].listing("u/toy")
    assert stand_in.answers == []


def test_a_hub_that_never_ends_an_answer_is_given_up(
    stand_in: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "LONGEST", -1.0)
    with pytest.raises(HubUnreachable, match="takes longer than"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")


@pytest.mark.parametrize("near", ["127.0.0.1", "2130706433", "[::1]", "10.0.0.1", "169.254.169.254", "localhost"])
def test_a_public_hub_leads_nobody_into_the_network_here(
    stand_in: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: str
) -> None:
    """The stand-in plays a proxy, by which alone this test reaches a public address."""
    monkeypatch.setenv("HTTP_PROXY", stand_in.address)
    monkeypatch.setenv("NO_PROXY", "")
    stand_in.answers = [(302, {"Location": f"http://{near}/api"}, b"")]
    huggingface_hub.close_session()
    with pytest.raises(HubError, match=r"http://1.1.1.1 redirects to http://.*, where no file is fetched"):
        Hub("http://1.1.1.1", tmp_path, False).listing("u/toy")
    huggingface_hub.close_session()
    assert len(stand_in.asked) == 1


def test_a_hub_out_of_reach_and_one_that_is_none_are_told(tmp_path: Path, stand_in: HubStandIn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    waits: list[float] = []
    with pytest.raises(HubUnreachable, match=f"u/toy: {address} does not answer, or was cut off"):
        Hub(address, tmp_path, False, wait=waits.append).listing("u/toy")
    assert waits == list(PAUSES)
    stand_in.commit = "../../etc"
    with pytest.raises(HubError, match="it is no listing"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")


@pytest.mark.parametrize(
    "path",
    [
        *("../up.gguf", "/etc/a.gguf", "a/../b.gguf", "a\\b.gguf", "C:a.gguf", "", "a//b.gguf"),
        *("a\x1b]0;t\x07.gguf", "a\0.gguf", "a\n.gguf", "a\x9b2J.gguf", "a\u202efugg.a", "a\ud800.gguf"),
        *("a" * 256 + ".gguf", "a/" * 600 + "b.gguf"),
    ],
)
def test_a_listing_that_names_other_places_is_refused(stand_in: HubStandIn, tmp_path: Path, path: str) -> None:
    stand_in.repositories["u/toy"] = {path: b""}
    with pytest.raises(HubError, match="it is no listing"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")


@pytest.mark.parametrize(
    ("path", "size", "blob"),
    [
        ("a", -1, "0" * 40),
        ("a", True, "0" * 40),
        ("a", "1", "0" * 40),
        ("a", 2**60, "0" * 40),
        ("a", 1, "x"),
        (5, 1, "0"),
    ],
)
def test_what_is_no_file_is_refused(path: str, size: int, blob: str) -> None:
    with pytest.raises(HubError, match="it is no listing"):
        HubFile(path, size, blob)


def test_offline_mode_is_kept(stand_in: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Offline, match="u/toy is not in the cache, and HF_HUB_OFFLINE is set"):
        _hub(stand_in, tmp_path)[0].listing("u/toy")
    assert stand_in.asked == []
