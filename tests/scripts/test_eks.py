"""The parameters of the overlay for EKS, what they are checked for, and the commands that follow from them."""

import re
from pathlib import Path

import pytest

from scripts.eks import OVERLAY, STAGES, clean_up, complaints, main, policies, read_parameters, steps

GIVEN = read_parameters(OVERLAY / "parameters" / "parameters.env")


def test_shipped_parameters_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaints(GIVEN) == []
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "eks: the parameters fit together\n"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ACCOUNT", "1111", "ACCOUNT is '1111': expected is the account's number, of twelve digits"),
        ("BUCKET", "Mine", "BUCKET is 'Mine': expected is the bucket's name"),
        ("REGION", "oregon", "REGION is 'oregon': expected is a region, as us-west-2"),
        ("TARGET", "Qwen3-32B", "TENSOR_PARALLEL is 32: Qwen3-32B has 8 heads of keys and values; choose a divisor"),
        ("PRICE", "$12", "PRICE is '$12': expected is what an hour of one verifier costs, as 12.5, or 0"),
        ("COMPILE_WIDTHS", "8,1", "COMPILE_WIDTHS is 8,1: the numbers must ascend"),
        (
            "DRAFT_TOKENS",
            "15",
            "DRAFT_TOKENS is 15: a draft of that length is judged in a pass of 16 tokens: add it to COMPILE_WIDTHS "
            "(1,8,32)",
        ),
        ("DRAFT_TOKEN", "7", f"DRAFT_TOKEN is unknown: the parameters are {', '.join(GIVEN)}"),
    ],
)
def test_what_does_not_fit_is_said(name: str, value: str, words: str) -> None:
    assert complaints({**GIVEN, name: value}) == [words]


def test_more_cores_than_a_claim_has_are_refused() -> None:
    [found] = complaints({**GIVEN, "TARGET": "other", "TENSOR_PARALLEL": "64"})
    assert found == "TENSOR_PARALLEL is 64: a verifier has 32 cores, by the claim half-trn2"


def test_line_that_is_no_parameter_is_named(tmp_path: Path) -> None:
    (tmp_path / "parameters.env").write_text("# words\n\nREGION\n")
    with pytest.raises(ValueError, match=r"parameters\.env, line 3: 'REGION' is not NAME=VALUE"):
        read_parameters(tmp_path / "parameters.env")


def test_accounts_may_no_more_than_they_use() -> None:
    found = policies(GIVEN)
    assert found.keys() == {"models-read", "models-write", "bench"}
    writes = {
        name: statement["Resource"]
        for name, policy in found.items()
        for statement in policy["Statement"]
        if "s3:PutObject" in statement["Action"]
    }
    bucket = f"arn:aws:s3:::{GIVEN['BUCKET']}"
    assert writes == {"models-write": f"{bucket}/programs/*", "bench": f"{bucket}/bench/*"}
    assert "*" not in "".join(
        each for policy in found.values() for line in policy["Statement"] for each in line["Action"]
    )


def test_every_stage_is_applied_in_order_and_taken_away_in_reverse() -> None:
    def stages(plan: list[tuple[str, list[str]]]) -> list[str]:
        lines = [line for _, commands in plan for line in commands]
        return [found[1] for line in lines if (found := re.search(r"-f out/([\w-]+)\.yaml", line))]

    assert stages(steps(GIVEN, Path("out"))) == list(STAGES)
    assert stages(clean_up(GIVEN, Path("out"))) == list(reversed(STAGES))


def test_stages_are_the_folders_of_the_overlay() -> None:
    assert sorted(path.name for path in OVERLAY.iterdir() if path.name[0].isdigit()) == list(STAGES)
