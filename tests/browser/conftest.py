"""Leaves these tests uncollected where what drives a browser is not installed; `make browser` installs it."""

import importlib.util

NEEDED = ("playwright", "axe_playwright_python")

collect_ignore_glob = [] if all(map(importlib.util.find_spec, NEEDED)) else ["test_*.py"]
