"""Federations that one person runs: the demo, its data, and the files that a new federation starts from."""
