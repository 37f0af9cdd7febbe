"""Child processes that end with their parent: programs and servers for the demo, measurements and tests, and workers
for work that may never end.
"""
