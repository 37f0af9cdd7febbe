"""How drafts come about in virtual time: draft models that texts share, drafters, and how long drafts are."""
