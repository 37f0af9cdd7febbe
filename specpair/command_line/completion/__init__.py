"""Completions of a program for bash, zsh and fish: what its parsers accept, and a script for each shell.

The scripts are static: a key press starts no Python.
"""
