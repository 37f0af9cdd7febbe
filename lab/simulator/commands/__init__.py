"""The commands of `specpair simulator`, each in a module of its own: `command_line` lists them."""
