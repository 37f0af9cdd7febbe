"""Classes that vLLM loads by name into its own processes: a scheduler, a proposer, and an extension of workers."""

KEY = "specpair"  # under it, in the `extra_args` of a request and in the `kv_transfer_params` of an output
