"""Says in one line what `make faults` lacks on this machine, before it begins: python -m tests.faults.needs."""

import os
import shutil
import sys

PROGRAMS = {"strace": "strace", "ip": "iproute2", "mkfs.ext4": "e2fsprogs", "mount": "mount"}


def main() -> int:
    """Returns 0 when nothing is missing."""
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if os.geteuid() != 0:
        print("make faults: needs root, for mounts and network namespaces of its own; run it as root", file=sys.stderr)
    elif missing:
        print(f"make faults: install what is missing: apt-get install {' '.join(missing)}", file=sys.stderr)
    elif not os.path.exists("/dev/net/tun"):
        print("make faults: /dev/net/tun is missing; load the module tun, or allow the device", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
