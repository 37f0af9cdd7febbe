"""The network of a pair: the drafter, a router if there is one, the verifiers, and the links between them."""
