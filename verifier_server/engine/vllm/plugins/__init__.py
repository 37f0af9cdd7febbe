"""Classes that vLLM loads by name into its own processes: a scheduler, a proposer, and an extension of workers."""

NO_TOKEN = -1  # stands in vLLM's tables behind the tokens of a text, and behind the likeliest ones of a token
KEY = "specpair"  # under it, in the `extra_args` of a request and in the `kv_transfer_params` of an output
