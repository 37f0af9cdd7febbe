"""Options on the command line: the flags, the settings and the values that are made from what their fields say."""
