"""A package, so that its fixtures end with its last test: an open model over two processes prevents a second one."""
