"""The llama.cpp engine: GGUF models on CPU, Metal and CUDA."""
