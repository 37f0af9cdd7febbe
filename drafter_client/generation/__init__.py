"""One text being generated: who writes it, from what, and the session it is written in."""
