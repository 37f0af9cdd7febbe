"""What the command lines of both ends share: the parser, the environment's variables, the version.

It imports nothing of ours, and only the standard library: the two ends never import each other.
"""
