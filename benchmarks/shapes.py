"""Shapes of Llamas by size: those of Llama 3 (8b) and 3.2 (3b, 1b), and smaller ones for a CPU and for tests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What a step costs by. `tied`: the table of embeddings is also the one that gives the logits."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    key_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def parameters(self) -> int:
        """How many numbers its weights are."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.key_heads)
        layer = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        tables = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * layer + tables + self.hidden

    def __str__(self) -> str:
        return (
            f"{self.parameters / 1e6:,.0f} million parameters, {self.layers} layers of {self.hidden}, "
            f"vocabulary {self.vocabulary:,}"
        )


SHAPES = {
    "8b": Shape(32, 4096, 14336, 32, 8, 128, 128_256, tied=False),
    "3b": Shape(28, 3072, 8192, 24, 8, 128, 128_256, tied=True),
    "1b": Shape(16, 2048, 8192, 32, 8, 64, 128_256, tied=True),
    "100m": Shape(12, 768, 2048, 12, 4, 64, 32_000, tied=True),
    "tiny": Shape(2, 64, 96, 2, 1, 32, 512, tied=True),
}
