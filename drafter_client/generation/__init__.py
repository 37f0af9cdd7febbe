"""One text being generated: the loop, its executors, and the session it is written in."""
