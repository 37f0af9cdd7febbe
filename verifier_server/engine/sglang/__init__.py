"""SGLang as a verifier: a core over a running SGLang server, which is asked over its REST interface."""
