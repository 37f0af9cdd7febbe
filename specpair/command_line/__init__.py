"""Shared by the command lines of both ends: parser, flags and settings of options, layers, the start of a program.

The verifier and the drafter share it because they never import each other. `layers`, `print_config` and the fields of
settings need pydantic and pydantic-settings, the other modules the standard library only.
"""
