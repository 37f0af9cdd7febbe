"""Child processes that end with their parent: programs and servers for the demo, measurements and tests, and workers
that do what might never end.
"""
