"""Experiments: one file, many runs, tables and figures; see docs/experiments.md."""
