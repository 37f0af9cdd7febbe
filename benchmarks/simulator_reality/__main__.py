"""Real fleets beside their simulations, each from one configuration file.

Method. A file in `configurations/` is a fleet as `python -m simulator run` takes it.

    python -m benchmarks.simulator_reality [--cases one_remote eight_lockstep]
"""

from pathlib import Path

from benchmarks.harness.report import Report, options_of
from benchmarks.simulator_reality.cases import CASES
from benchmarks.simulator_reality.comparing import compared

FOLDER = Path(__file__).parent / "configurations"


def main() -> None:
    options = options_of(__doc__, {"cases": [*CASES]})
    report = Report("simulator_reality", options)
    for name in options.cases:
        report.line(*compared(FOLDER / f"{name}.yaml", CASES[name]))
    report.save()


if __name__ == "__main__":
    main()
