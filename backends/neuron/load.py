"""Loads a Llama model on trn1 or inf2."""

from backends.base import LoadOptions, Progress
from backends.neuron.backend import NeuronLegacyBackend


def load(options: LoadOptions, progress: Progress | None = None) -> NeuronLegacyBackend:
    """Compile and load the model of a folder in Hugging Face layout. Raises ModelLoadError with the reason."""
    return NeuronLegacyBackend(options, progress)
