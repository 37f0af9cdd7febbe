"""What a new user meets in the first hour: wrong addresses, the model that ships, and counts in words."""

import re

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.display.panel_rows import columns, headline, ttft
from drafter_client.options import Mode
from drafter_client.statistics import SOLO, Stats
from gateway.openai_api.places import TextQueue
from specpair.http_service.keys.access import DRAFTER, VERIFIER, Access, KeyStore
from specpair.numbers import counted
from specpair.protocol.errors import Overloaded
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, serving


@pytest.mark.parametrize("end", ["/v1", "/v1/"])
def test_an_address_with_openai_s_path_is_refused_with_what_to_leave_out(
    drafter: Command, verifier: Verifier, end: str
) -> None:
    ran = drafter("--verifier", verifier.url + end, *TOY, "--prompt", "x")
    assert ran.status == 1 and f"{verifier.url}/v1 has no /health: leave /v1 out" in ran.err


def test_a_foreign_target_is_told_from_the_draft_model_that_ships(drafter: Command) -> None:
    with serving(ScriptedBackend(Script())) as foreign:
        ran = drafter("--verifier", foreign.url, "--prompt", "x", "--threads", "1")
        named = drafter("--verifier", foreign.url, "--prompt", "x", "--threads", "1", "--translate", "--json")
    assert ran.status == 1 and named.status == 0
    assert "with --draft-model (stdlib-draft-q8_0 ships, and is taken where none is named), or let it draft" in ran.err


@pytest.mark.parametrize("mode", [SOLO, *map(str, Mode)])
def test_one_token_is_singular_and_a_text_that_never_began_has_no_ttft(mode: str) -> None:
    never, one = Stats(mode=mode), Stats(mode=mode, prompt_tokens=1, token_ids=[7], ttft=0.0002)
    assert headline(never)[:2] == ["0 tokens", "TTFT -"]
    assert headline(one)[:2] == ["1 token", "TTFT 0 ms"]
    assert dict(columns(never)[0])["TTFT"] == "-"
    assert dict(columns(one)[0])["prompt"] == dict(columns(one)[0])["generated"] == "1 token"


def test_counts_in_words() -> None:
    assert [counted(number, "token") for number in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]
    assert [counted(number, "text is", "texts are") for number in (1, 2)] == ["1 text is", "2 texts are"]
    assert (ttft(0.0126, 3), ttft(0.0, 0)) == ("13 ms", "-")
    places = TextQueue(lambda: 1, lambda: 1, lambda: 0.0)
    held = places.enter(2)
    with pytest.raises(Overloaded, match=re.escape("1 text is being generated and 1 waits: try again later")):
        places.check()
    assert len(held) == 2


@pytest.mark.parametrize("names", [VERIFIER, DRAFTER])
def test_a_service_on_loopback_alone_does_not_claim_to_serve_networks(names: object) -> None:
    warning = str(Access(KeyStore(), names=names).warning())  # type: ignore[arg-type]
    assert "everybody on this machine can use" in warning
    assert "where it listens to more than loopback, everybody in its private networks" in warning
