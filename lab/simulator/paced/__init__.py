"""Engines that take as long as stated ones in real time, and models made from the default pair: for tests and
measurements of running servers."""
