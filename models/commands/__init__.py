"""The command `models` of the drafter and the verifier: the cache, facts of model files, and pairs of models."""
