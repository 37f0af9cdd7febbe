"""Manual pages of a program's commands, made from their parsers."""
