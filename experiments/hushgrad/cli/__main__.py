"""The `hushgrad` command: finds the verb, runs it, and turns errors into one line and an exit code."""

import sys

from hushgrad.cli import entry


def main() -> None:
    """Runs the command line and exits."""
    sys.exit(entry.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
