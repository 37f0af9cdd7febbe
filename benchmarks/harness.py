"""What several measurements need: a target that costs what a large one does, prompts, a verifier as a process."""

import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

from backends.contract import Entry, LoadOptions
from backends.registry import load
from models import DEFAULT_TARGET
from models.corpus import HELD_OUT
from models.export import pad_layers

ROOT = Path(__file__).resolve().parent.parent
HELD_OUT_FILES = ("configparser.py", "fractions.py", "_osx_support.py")
CACHE = ROOT / ".cache"
_PAD_LAYERS = 24
_PROBE_WIDTH, _MOST_WIDTH = 8, 128  # times; the second is a file of 2.6 GB


def step_ms(
    model: Path, *, widths: Sequence[int] = (1,), threads: int = 1, repeats: int = 9, in_turn: bool = False
) -> dict[int, float]:
    """Median milliseconds of a forward pass over so many tokens, logits for each, behind a prompt of 64 tokens.

    Each width by itself, pass after pass; or `in_turn`, so that no pass has the width of the one before.
    """
    backend = load("llama_cpp", LoadOptions(model=model, rows=1, context_length=512, threads=threads))
    try:
        backend.extend([Entry(0, 0, list(range(2, 66)), 64)])
        once = [width for width in widths for _ in range(repeats)]
        times: dict[int, list[float]] = {width: [] for width in widths}
        for width in list(widths) * repeats if in_turn else once:
            began = time.perf_counter()
            backend.extend([Entry(0, 64, list(range(2, 2 + width)), 0)])
            times[width].append(1e3 * (time.perf_counter() - began))
        return {width: median(taken) for width, taken in times.items()}
    finally:
        backend.close()


def padded_target(milliseconds: float) -> Path:
    """The default target padded until a step costs about so many milliseconds here on one thread; made once and kept.

    It has 32 layers, as an 8B model has, all of them wider than the target's own.
    """
    CACHE.mkdir(exist_ok=True)
    kept = CACHE / f"padded-{milliseconds:g}ms.gguf"
    if not kept.exists():
        narrow, wide = _padded_cost(1), _padded_cost(_PROBE_WIDTH)
        per_width = max((wide - narrow) / (_PROBE_WIDTH - 1), 1e-3)
        width = 1 + round((milliseconds - narrow) / per_width)
        pad_layers(DEFAULT_TARGET, kept, _PAD_LAYERS, max(1, min(_MOST_WIDTH, width)))
    return kept


def _padded_cost(width: int) -> float:
    probe = CACHE / "probe.gguf"
    pad_layers(DEFAULT_TARGET, probe, _PAD_LAYERS, width)
    try:
        return step_ms(probe, repeats=15)[1]
    finally:
        probe.unlink()


def held_out_prompts(count: int) -> list[str]:
    """So many prompts of 4 lines, out of files that the default pair was not trained on and every Python has."""
    assert HELD_OUT.issuperset(HELD_OUT_FILES)
    library = Path(sysconfig.get_path("stdlib"))
    texts = [(library / name).read_text(encoding="utf-8").splitlines(keepends=True) for name in HELD_OUT_FILES]
    places = [(lines, (part * len(lines)) // 7) for part in range(1, 7) for lines in texts]
    return ["".join(lines[at : at + 4]) for lines, at in places[:count]]


class Server:
    """A verifier in a process of its own, on a free loopback port."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.url = ""
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            if not self._ready.wait(60) or not self.url:
                raise RuntimeError("the verifier did not start:\n" + "".join(self._lines))
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            if found := re.search(r"running on (http://\S+)", line):
                self.url = found.group(1)
                self._ready.set()
        self._ready.set()

    def stop(self) -> None:
        """End the process, and let go of the pipe that its log came through."""
        self.process.terminate()
        self.process.wait(30)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def serve(application: str, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """Serve `module:attribute` with uvicorn on a free loopback port while the block lasts.

    With the settings given and no others: what the user's own environment sets for a verifier is left out.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VERIFIER_")}
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        application,
        "--port",
        "0",
        "--no-access-log",
        "--timeout-keep-alive",
        "75",
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, env=inherited | (environment or {}), stderr=subprocess.PIPE, text=True
    )
    server = Server(process)
    try:
        yield server
    finally:
        server.stop()


def verifier(**settings: object) -> AbstractContextManager[Server]:
    """Serve a verifier; `settings` by their lower-case names."""
    return serve("verifier_server.app:app", {f"VERIFIER_{key.upper()}": str(value) for key, value in settings.items()})
