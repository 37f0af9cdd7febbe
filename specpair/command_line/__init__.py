"""Command-line code of verifier and drafter: parser, flags and settings of options, layers, start of a program.

The verifier and the drafter share it because they never import each other. `layers` needs pydantic,
`completion` shtab, `table` rich, the other modules the standard library only.
"""
