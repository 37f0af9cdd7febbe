"""A stand-in for transformers-neuronx 0.13 on a CPU: Llama with continuous batching, and nothing else of it.

It does with tokens, slots and rows what the library's source does on its way to the device, traps included: each is
marked TRAP where it is laid, with the function of the library that lays it. What stands in for the device is a small
Llama in PyTorch whose keys and values lie in slots, and which sees what the library's masks let the device see. So a
caller that places a token wrongly gets wrong logits here, too, and one that is refused there is refused here.
"""

from tests.stand_ins.transformers_neuronx.config import ContinuousBatchingConfig, NeuronConfig
from tests.stand_ins.transformers_neuronx.model import LlamaForSampling

__all__ = ["ContinuousBatchingConfig", "LlamaForSampling", "NeuronConfig"]
