"""The same seed gives the same bytes, whatever the processor."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.simulator import command_line
from lab.simulator.fleet.settings import Mode
from lab.simulator.workload.arrivals import Gamma
from lab.simulator.workload.conversation import Conversation, Turn
from lab.simulator.workload.distributions import LogNormal, whole
from tests.lab.simulator.fleet.fleets import DEVICE, TWO, run
from tests.paths import ROOT

# Digests of the requests and of when each of their tokens came. A change to the scheduler, to the controller or to the
# simulator may change them: then put in those that this test prints. Another machine must not.
DIGESTS = {
    "target": "436e2baf8bec0b6b",
    "fused": "ccf6bc1f8ac3312e",
    "lockstep": "2a254f2d082cef01",
    "remote": "419685d504324a6a",
    "auto": "72322e6ef76055a5",
    "trees": "41a90e94ec74f37c",
    "by table": "f098b37602e57318",
}


def _conversations() -> Iterator[Conversation]:
    rng = random.Random(5)
    lengths = LogNormal(40.0, 0.8, 2.0, 90.0)
    for number, at in zip(range(16), Gamma(8.0, 2.0).times(rng), strict=False):
        yield Conversation(f"c{number}", at, (Turn(whole(lengths, rng), whole(lengths, rng), 0.1),) * 2)


@pytest.mark.parametrize("name", DIGESTS)
def test_requests_are_those_of_other_machines(name: str) -> None:
    mode = Mode.REMOTE if name in ("trees", "by table") else Mode(name)
    device, probes = replace(DEVICE, mode=mode, trees=name == "trees"), 2 if name == "by table" else None
    records, _ = run(replace(TWO, devices=(device,), probes=probes, seed=3), _conversations())
    told = [
        (each.conversation, each.turn, each.nodes, each.sent, each.times, each.drafted, each.accepted)
        for each in records
    ]
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    assert digest == DIGESTS[name], f"the digest of {name!r} is {digest!r} now"


FLEET = """\
sim_time_ms: 3000
mode: remote
replications: 2
devices:
  verifiers:
    - {name: big, count: 2, model: qwen3-30b-a3b, device: h100-sxm}
  drafters:
    - {name: laptop, count: 20, cost: {law: linear, decode_ms: 8, per_token_ms: 0.2}, agreement: [0.8, 0.7]}
connections: [{link: wan}]
workload:
  arrival: gamma
  rate_rps: 12
  cv: 3
  prompt_tokens: {distribution: lognormal, mean: 90, cv: 1}
  output_tokens: {distribution: lognormal, mean: 20, cv: 1}
"""


def test_files_are_the_same_without_the_vector_instructions_of_the_processor(tmp_path: Path) -> None:
    """The C library, NumPy and OpenBLAS choose other code then, whose last bits differ."""
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET, encoding="utf-8")
    command = ["run", str(file), "--jobs", "1", "--no-png", "--output"]
    assert command_line.run([*command, str(tmp_path / "here")]) == 0
    denied = {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX,-AVX512F,-AVX2_Usable,-FMA_Usable,-AVX_Usable",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
        "OPENBLAS_CORETYPE": "Prescott",
    }
    subprocess.run(
        [sys.executable, "-m", "lab.simulator", *command, str(tmp_path / "there")],
        check=True,
        capture_output=True,
        env=os.environ | denied,
        cwd=ROOT,
    )
    here, there = (
        {each.name: each.read_bytes() for each in sorted((tmp_path / name).iterdir())} for name in ("here", "there")
    )
    assert {"summary.json", "summary.csv", "requests-1.csv", "samples-2.csv"} <= set(here)
    assert json.loads(here["summary.json"])["measures"]["whole"]["mean"] > 10
    for name in ("summary.json", "summary.csv", *(each for each in here if each.endswith("-1.csv"))):
        assert here[name] == there[name], name
