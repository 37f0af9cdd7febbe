"""The settings of the router: flags, variables, `specpair.toml`, the file of nodes, and what is wrong with them."""

import sys
from pathlib import Path

import pytest

from gateway.router.connections import node_url
from gateway.router.messages import NodeSpec, read_nodes
from gateway.router.settings import from_flags
from specpair.__main__ import main
from specpair.command_line.given_values import SettingsError


def test_the_nodes_of_flags_and_file(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text('[[nodes]]\nurl = "HTTP://A:1/"\nweight = 2\nhourly_price = 1.5\nmodel = "m"\n')
    settings, nodes = from_flags(["--node", "b:8000", "--node=http://a:1", "--nodes-file", str(file)], {})
    assert nodes == [NodeSpec("http://b:8000"), NodeSpec("http://a:1", "m", 2.0, 1.5)], "the file says more of one"
    assert settings.port == 8090 and settings.policy == "wjsq"


def test_variables_and_the_file_of_settings(tmp_path: Path) -> None:
    config = tmp_path / "specpair.toml"
    config.write_text('[router]\nregister_key = "join"\npolicy = "hash"\nport = 5\n')
    settings, nodes = from_flags(["--config", str(config), "--port", "7"], {"ROUTER_POLICY": "jsq2"})
    assert (settings.port, settings.policy, nodes) == (7, "jsq2", [])
    assert settings.looking_key is None
    settings, _ = from_flags(["--config", str(config)], {"ROUTER_API_KEY": "a", "ROUTER_NODE_KEY": "b"})
    assert settings.looking_key == "b"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no node: name some with --node"),
        (["--node", "a:1", "--look-every", "0"], "--look-every: must be in (0, 60], got 0"),
        (["--node", "a:1", "--api-key", "k", "--insecure"], "insecure: it means no key is needed"),
        (["--node", "a:1", "--node-key", "a b"], "--node-key: a header can carry"),
        (["--node", "a:1", "--policy", "wjsqs"], "did you mean wjsq?"),
        (["--node", "a:1", "--policy", "slo_aware"], "no 'slo_aware'"),
        (["--node", "a:1", "--policy", "nowhere:Mine"], "--policy: nowhere of the policy nowhere:Mine cannot be"),
        (["--nodes-file", "/none.toml"], "/none.toml cannot be read"),
    ],
)
def test_a_bad_setting_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        from_flags(arguments, {})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nodes = 3", "nodes: "),
        ('[[node]]\nurl = "http://a"', "nodes.toml: no key 'node'; did you mean nodes?"),
        ('[[nodes]]\nurl = "http://a"\nwieght = 2', "nodes.0: no key 'wieght'; did you mean weight?"),
        ('[[nodes]]\nurl = "http://a"\nweight = 0', "nodes.0.weight: "),
        ('[[nodes]]\nurl = "ftp://a"', "nodes.0.url: 'ftp://a' is not the address of a node"),
        ('[[nodes]]\nurl = "http://a"\n[[nodes]]\nurl = "http://A/"', "http://a is there twice"),
        ("[[nodes", "is not valid TOML"),
    ],
)
def test_a_bad_file_of_nodes(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(content)
    with pytest.raises(SettingsError) as raised:
        read_nodes(file)
    assert str(raised.value).startswith(str(file)) and said in str(raised.value)


@pytest.mark.parametrize(
    "url", ["", "http://", "http://a:b", "http://a:0", "http://a?x=1", "http://u:p@a", "http://a b", "é"]
)
def test_what_is_no_address_of_a_node(url: str) -> None:
    with pytest.raises(ValueError, match=r"address of a node"):
        node_url(url)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, status, said in (
        (["router", "--node", "ftp://x"], 2, "'ftp://x' is not the address of a node"),
        (["router", "--nodes-file", "/none.toml"], 2, "specpair router: /none.toml cannot be read"),
        (["router", "key", "--help"], 0, "usage: specpair router key new NAME"),
        (["router", "--print-config", "--node", "a:1"], 0, "policy"),
        (["ruoter"], 2, "did you mean router?"),
        ([], 2, "COMMAND"),
        (["--version"], 0, "specpair "),
    ):
        monkeypatch.setattr(sys, "argv", ["specpair", *arguments])
        try:
            found = main()
        except SystemExit as ended:
            found = int(ended.code or 0)
        told = capsys.readouterr()
        assert found == status and said in told.out + told.err, (arguments, told)
