"""The default model pair and the recipe that made it.

Three GGUF files lie beside this module, so that both ends of a session have something to run before anything is
downloaded. They continue Python source and know nothing else:

* ``DEFAULT_TARGET``: the model whose text comes out (7.3 M parameters, Q8_0).
* ``DEFAULT_DRAFT``: the small model that guesses (0.9 M parameters, Q8_0), distilled from the target.
* ``DEFAULT_TWIN``: the target again in Q4_0. It agrees with the target far more often than the draft does and costs
  nearly as much as the target: the drafter to choose when the drafting machine is fast and the link is slow.

All three share one vocabulary of 4,096 ids. ``models.export`` writes such files, ``models.training.train`` makes such a
pair; neither is imported here. The paths are those of ``backends.shipped``, which is what programs at run time ask.
"""

from backends.shipped import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN

__all__ = ["DEFAULT_DRAFT", "DEFAULT_TARGET", "DEFAULT_TWIN"]
