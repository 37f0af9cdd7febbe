"""How long processes have had a processor. Needs Linux."""

import os
import time
from pathlib import Path


def used_by(process: int) -> float:
    """Seconds that the process of this id has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_here_and_by(process: int) -> float:
    """Seconds that this process and the one of this id have used."""
    return time.process_time() + used_by(process)
