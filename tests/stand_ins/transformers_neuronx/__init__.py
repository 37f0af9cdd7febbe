"""A stand-in for transformers-neuronx 0.13 on a CPU: Llama with continuous batching only.

It treats tokens, cells (`cache_ids`) and slots (`start_ids`) as the library's source does on the way to the device,
traps included. A comment TRAP marks each trap, with the function of the library that has it. The device is replaced by
a small Llama in PyTorch with the same cells and attention masks. So a caller that misplaces a token gets wrong logits
here, too, and a call that the library refuses is refused here.
"""

from tests.stand_ins.transformers_neuronx.config import ContinuousBatchingConfig, NeuronConfig
from tests.stand_ins.transformers_neuronx.model import LlamaForSampling

__all__ = ["ContinuousBatchingConfig", "LlamaForSampling", "NeuronConfig"]
