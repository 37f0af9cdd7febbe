"""SGLang as the target's engine: a core over the REST interface of a running SGLang server."""
