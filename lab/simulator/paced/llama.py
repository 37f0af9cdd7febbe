"""llama.cpp's engine at another pace, in each pass that it runs.

Of recurrent and hybrid models these are more than its callers ask for: tokens are read again after a rejection, at the
head of a pass or in a pass of their own, and what decides between the two is timed when the model is loaded.
"""

from collections.abc import Sequence
from functools import partial

from backends.llama_cpp.backend import LlamaBackend
from backends.llama_cpp.load import load
from lab.simulator.paced.engine import PassPacer
from specpair.engines.backend import Entry, Logits, Progress
from specpair.engines.load_options import LoadOptions


class PacedLlama(LlamaBackend):
    """A GGUF model of which each pass takes what `pace` says."""

    def __init__(
        self, pace: PassPacer, options: LoadOptions, progress: Progress | None = None, *, extra_buffers: bool = True
    ) -> None:
        self.pace = pace
        super().__init__(options, progress, extra_buffers=extra_buffers)

    def close(self) -> None:
        super().close()
        self.pace.tell()

    def _pass(self, batch: Sequence[Entry]) -> list[Logits]:
        return self.pace.of(batch, partial(super()._pass, batch))


def load_paced_llama(options: LoadOptions, pace: PassPacer) -> LlamaBackend:
    """Load a GGUF file. Raises as `backends.llama_cpp.load.load` does."""
    return load(options, made_by=partial(PacedLlama, pace))
