"""The commands of `python -m simulator`, each in a module of its own: `command_line` lists them."""
