"""The neuron_legacy engine: Llama models on trn1 and inf2, with transformers-neuronx."""
