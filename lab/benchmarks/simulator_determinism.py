"""Whether a simulation has the same bytes on two kinds of machines.

Each scenario is run by this program, by one on the same machine that is denied its vector instructions (the C library,
NumPy and OpenBLAS compute by others then: their logarithms, exponentials and products have other last bits), and by the
interpreters named with `--pythons`, such as one of another processor under emulation. Told are the first digits of the
SHA-256 digests of files that `specpair simulator run` writes. Unless they are the same for all, the program ends
with status 1.

python -m lab.benchmarks.simulator_determinism [--pythons ./python-aarch64] [--seconds 20] [--save]
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.benchmarks.harness.report import ROOT, Report, options_of

FLAGS = {"seconds": 20.0, "pythons": {"nargs": "+", "help": "further interpreters to compare"}}
# As a processor of 2008 has it. Names that a library does not know do nothing.
DENIED = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX,-AVX512F,-AVX512VL,-AVX2_Usable,-FMA_Usable,-AVX_Usable",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
    "OPENBLAS_CORETYPE": "Prescott",
}
_FLEET = """
burn_in_ms: 1000
seed: 7
replications: 2
devices:
  verifiers:
    - name: big
      count: 2
      model: qwen3-30b-a3b
      device: h100-sxm
      draft: {cost: {law: linear, decode_ms: 3, per_token_ms: 0.1}, agreement: 0.8}
  drafters:
    - name: phone
      count: 60
      cost: {law: linear, decode_ms: 8, per_token_ms: 1.2}
      agreement: {law: stretches, easy: 0.9, hard: 0.5, easy_tokens: 20, hard_tokens: 8}
      availability: {on_s: {distribution: exponential, mean: 30}, off_s: {distribution: exponential, mean: 3}}
connections: [{link: wan}]
workload:
  arrival: gamma
  rate_rps: 6
  cv: 3
  prompt_tokens: {distribution: lognormal, mean: 100, cv: 0.8}
  output_tokens: {distribution: lognormal, mean: 60, cv: 1.5}
slo: {ttft_ms: 1000, tpot_ms: 50}
"""
_TABLES = ("requests", "samples")
SCENARIOS: dict[str, dict[str, object]] = {
    "target": {"mode": "target"},
    "fused": {"mode": "fused"},
    "lockstep": {"mode": "lockstep"},
    "remote": {"mode": "remote"},
    "auto": {"mode": "auto"},
    "remote, by table": {"mode": "remote", "fidelity": "table"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("simulator_determinism", options)
    report.line(f"{options.seconds:g} s simulated, twice; requests, samples, summary; the machine")
    here: dict[str, list[str]] = {}
    same = True
    for python, changed in (
        (sys.executable, {}),
        (sys.executable, DENIED),
        *((python, {}) for python in options.pythons or ()),
    ):
        machine = _machine(python) + (", without its vector instructions" if changed else "")
        for name, keys in SCENARIOS.items():
            found = _digests(python, {**os.environ, **changed}, {**keys, "sim_time_ms": 1e3 * options.seconds})
            alike = here.setdefault(name, found) == found
            same = same and alike
            report.line(f"  {name:17} {' '.join(found)}  {machine}{'' if alike else ': OTHER BYTES'}")
    report.line("all the same" if same else "not all the same")
    report.save()
    if not same:
        raise SystemExit(1)


def _machine(python: str) -> str:
    command = "import platform; print(platform.machine(), 'Python', platform.python_version(), *platform.libc_ver())"
    return subprocess.run([python, "-c", command], check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def _digests(python: str, environment: dict[str, str], keys: dict[str, object]) -> list[str]:
    """Of the requests, the samples and the summary of a scenario."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "fleet.yaml", Path(folder) / "out"
        file.write_text(_FLEET, encoding="utf-8")
        subprocess.run(
            [python, "-m", "lab.simulator", "run", str(file), "--output", str(output), "--jobs", "1", "--no-png"]
            + [part for key, value in keys.items() for part in ("--set", f"{key}={value}")],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=ROOT,
        )
        tables = [b"".join((output / f"{name}-{each}.csv").read_bytes() for each in (1, 2)) for name in _TABLES]
        summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
        summary.pop("version")  # a checkout on another machine need not be installed
        return [hashlib.sha256(each).hexdigest()[:12] for each in (*tables, json.dumps(summary).encode())]


if __name__ == "__main__":
    main()
