"""The neuron_legacy engine (Llama models on trn1 and inf2), and the imports of the AWS Neuron SDK."""
