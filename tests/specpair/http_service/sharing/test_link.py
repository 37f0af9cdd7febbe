"""The link by which a machine joins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.http_service.sharing.link import BadLink, JoinLink, read_link

SECRETS = st.binary(min_size=16, max_size=16)
HOSTS = st.one_of(
    st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str), st.sampled_from(["bigbox", "big-box.local"])
)
LINK = str(JoinLink("bigbox", 8443, bytes(16), bytes(range(16))))


@given(HOSTS, st.integers(1, 65535), SECRETS, SECRETS)
def test_a_link_is_read_as_it_was_written_also_from_a_wrapped_line(
    host: str, port: int, fingerprint: bytes, token: bytes
) -> None:
    link = JoinLink(host, port, fingerprint, token)
    text = str(link)
    assert read_link(text) == read_link(f" {text[:30]}\n  {text[30:]}\n") == link
    assert text[-22:] not in repr(link), "the token must not get into logs"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("https://bigbox:8443/abc", "begins with specpair://"),
        ("", "begins with"),
        (LINK[:-1], "43 characters behind the last slash instead of 44"),
        (LINK + "A", "45 characters"),
        (LINK.replace(":8443", ""), "form specpair://HOST:PORT/"),
        (LINK.replace("8443", "70000"), "form specpair://HOST:PORT/"),
        (LINK[:-1] + ("B" if LINK[-1] != "B" else "C"), "was changed on its way"),
    ],
)
def test_what_is_no_link_is_refused_without_its_secret(text: str, complaint: str) -> None:
    with pytest.raises(BadLink, match=complaint) as caught:
        read_link(text)
    assert LINK[-22:-1] not in str(caught.value)
