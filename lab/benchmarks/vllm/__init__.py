"""The verifier's engine `vllm`, beside vLLM itself. Runs in the environment of requirements/vllm.txt."""
