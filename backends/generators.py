"""The error for a model that is no generator: one for embeddings, for ranking, or an encoder with a decoder."""

from specpair.engines.errors import ModelLoadError


class NoGenerator(ModelLoadError):
    """The model does not write a text token by token. Each engine looks for the signs of that in its files."""

    def __init__(self, name: str, sign: str) -> None:
        """`sign`: what in its files says so."""
        super().__init__(
            f"{name} does not generate text token by token ({sign}): it is a model for embeddings, ranking or "
            "translation. Choose a causal language model"
        )
