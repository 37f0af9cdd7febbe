"""`python -m drafter_client`, also installed as `drafter`."""

import os
import sys

from backends.contract import BackendError
from drafter_client.arguments import compare_options, drafter_options, solo_options
from drafter_client.commands.common import INTERRUPTED
from drafter_client.commands.draft import run_draft
from drafter_client.commands.many import run_many
from drafter_client.commands.solo import run_solo_command
from drafter_client.comparing.command import run_compare
from drafter_client.errors import DrafterError
from drafter_client.profiles.command import report_parser, run_report
from speculation.errors import SpecPairError

SWITCH_INTERVAL = 0.0005  # seconds; at the default of 5 ms a thread that computes holds answers back that long


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 an error said on standard error, 2 bad flags, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        if arguments[:1] == ["solo"]:
            return run_solo_command(solo_options(arguments[1:]))
        if arguments[:1] == ["report"]:
            return run_report(report_parser().parse_args(arguments[1:]))
        if arguments[:1] == ["compare"]:
            return run_compare(compare_options(arguments[1:]))
        options = drafter_options(arguments)
        return run_draft(options) if options.prompt_file is None else run_many(options)
    except (SpecPairError, DrafterError, BackendError) as error:
        print(f"drafter: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndrafter: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has left, as in `drafter … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return 1


if __name__ == "__main__":
    sys.exit(main())
