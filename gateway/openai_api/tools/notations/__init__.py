"""One module for each style in which models write calls."""
