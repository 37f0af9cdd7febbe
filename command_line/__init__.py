"""Shared by the command lines of both ends: parser, layers of settings, the version, the start of a program.

The verifier and the drafter share it because they never import each other. `layers` and `print_config` need pydantic
and pydantic-settings, the other modules the standard library only.
"""
