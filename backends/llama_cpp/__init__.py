"""The llama_cpp engine: GGUF models on CPU, Metal and CUDA."""
