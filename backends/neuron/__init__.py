"""The AWS Neuron SDK, for the engines torch and neuron_legacy: its cores, its chips, its imports."""
