"""Who is let in, and in whose name: the rule itself, without HTTP."""

import pytest

from speculation.errors import Forbidden, Unauthorized
from verifier_server.access import Access, client_of, owner_of

KEYED = Access("s3cret", insecure=False)
OPEN = Access(None, insecure=False)
INSECURE = Access(None, insecure=True)

SERVED = [
    None,  # a UNIX socket
    "127.0.0.1",
    "127.8.9.10",
    "::1",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.3.4",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "fc00::1",
    "fdff:ffff::1",
    "::ffff:127.0.0.1",
    "::ffff:192.168.1.1",
]
REFUSED = [
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "169.253.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "2001:db8::1",
    "2a00:1450::1",
    "fec0::1",
    "::",
    "::10.0.0.1",
    "64:ff9b::10.0.0.1",
    "::ffff:8.8.8.8",
    "2001:db8::1%eth0",
    "testclient",
    "unknown",
    "",
    "10.0.0.1 ",
    "010.0.0.1",
    "10.1",
    "localhost",
]


@pytest.mark.parametrize("address", SERVED)
def test_without_a_key_this_machine_and_private_networks_are_served(address: str | None) -> None:
    assert OPEN.admit(address, "").owner == ""
    assert INSECURE.admit(address, "").owner == ""
    with pytest.raises(Unauthorized):
        KEYED.admit(address, "")


@pytest.mark.parametrize("address", REFUSED)
def test_without_a_key_everybody_else_is_told_what_to_set(address: str) -> None:
    with pytest.raises(
        Forbidden, match=r"start it with VERIFIER_API_KEY=<key>.*or with VERIFIER_INSECURE=1"
    ) as refused:
        OPEN.admit(address, "Bearer s3cret")
    assert repr(address) in refused.value.message
    assert INSECURE.admit(address, "").owner == ""
    assert KEYED.admit(address, "Bearer s3cret").owner == owner_of("s3cret")


@pytest.mark.parametrize(
    "headers",
    [
        ["10.0.0.1"],
        ["192.168.1.1, 127.0.0.1"],
        ["fd00::1", "10.0.0.1"],
        ["10.0.0.1:5123"],
        ["[fd00::1]:5123"],
        ['for=192.168.0.7;proto=http, FOR="[fd00::1]:4711"'],
    ],
)
def test_a_proxy_may_forward_for_private_networks(headers: list[str]) -> None:
    assert OPEN.admit("127.0.0.1", "", headers).owner == ""


@pytest.mark.parametrize(
    "headers",
    [
        ["8.8.8.8"],
        ["10.0.0.1, 8.8.8.8"],
        ["8.8.8.8, 10.0.0.1"],
        ["10.0.0.1", "2001:db8::1"],
        ["[2001:db8::1]:5123"],
        ["unknown"],
        [""],
        ["for=8.8.8.8"],
        ["for=_hidden;by=10.0.0.1"],
        ["proto=https"],
        ["for=10.0.0.1, for=unknown"],
    ],
)
@pytest.mark.parametrize("address", [None, "127.0.0.1", "10.0.0.1"])
def test_what_a_proxy_forwards_from_elsewhere_is_refused(address: str | None, headers: list[str]) -> None:
    with pytest.raises(Forbidden):
        OPEN.admit(address, "", headers)
    assert INSECURE.admit(address, "", headers).owner == ""
    assert KEYED.admit(address, "Bearer s3cret", headers).owner == owner_of("s3cret")


def test_what_is_forwarded_never_helps_who_is_far_away() -> None:
    with pytest.raises(Forbidden):
        OPEN.admit("8.8.8.8", "", ["127.0.0.1"])


def test_a_refusal_is_one_short_line_whatever_the_address() -> None:
    with pytest.raises(Forbidden) as refused:
        OPEN.admit("127.0.0.1", "", ["\x1b[2J\n" + "x" * 5000])
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 350


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "s3cret", "Basic s3cret", "Bearer s3cret ext", "Bearer s\u00e9cret"]
)
def test_with_a_key_nothing_else_lets_in(given: str) -> None:
    with pytest.raises(Unauthorized, match="send the header Authorization: Bearer <key>"):
        KEYED.admit("127.0.0.1", given)


@pytest.mark.parametrize("given", ["Bearer s3cret", "bearer s3cret", "BEARER   s3cret "])
def test_with_the_key_every_address_is_served_in_the_name_of_the_key(given: str) -> None:
    near, far = KEYED.admit("127.0.0.1", given), KEYED.admit("8.8.8.8", given)
    assert near.owner == near.client == far.owner == far.client != ""
    assert near.name != far.name, "the latest session is of key and address"


def test_the_name_of_a_key_is_stable_and_does_not_hold_it() -> None:
    assert owner_of("s3cret") == Access("s3cret", insecure=False).admit(None, "Bearer s3cret").owner
    assert owner_of("s3cret") != owner_of("s3cret2")
    assert "s3cret" not in owner_of("s3cret")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("fd00::1", "fd00::ffff:ffff:ffff:ffff", True),  # one machine can have all of these
        ("fd00::1", "fd00:0:0:1::1", False),
        ("fe80::1", "fe80::2", False),
        ("127.0.0.1", "127.0.0.2", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "::ffff:127.8.9.10", True),
        (None, "127.0.0.1", False),
        (None, None, True),
    ],
)
def test_whose_quota_counts_without_a_key(one: str | None, other: str | None, same: bool) -> None:
    assert (client_of(one) == client_of(other)) is same
    assert OPEN.admit(one, "").client == client_of(one)
    assert OPEN.admit(one, "a").name != OPEN.admit(one, "b").name


def test_a_caller_s_name_does_not_grow_with_its_header() -> None:
    long, longer = OPEN.admit("127.0.0.1", "x" * 60_000).name, OPEN.admit("127.0.0.1", "x" * 60_001).name
    assert long != longer
    assert len(long) == len(longer) < 100


def test_what_is_said_at_the_start() -> None:
    assert KEYED.warning() is None
    assert "no VERIFIER_API_KEY is set" in str(OPEN.warning())
    assert "VERIFIER_INSECURE is set and there is no key" in str(INSECURE.warning())
