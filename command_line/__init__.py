"""Shared by the command lines of both ends: the parser, environment variables, the version, the start of a program.

Imports the standard library only. The verifier and the drafter share it because they never import each other.
"""
