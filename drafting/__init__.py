"""What guesses: a model in the rows of an engine, or the text itself; on a laptop or beside the target."""
