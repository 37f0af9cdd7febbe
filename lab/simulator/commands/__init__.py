"""The commands of `specpair simulator` that run fleets; `command_line` lists all."""
