"""Runs in .bench-env: draws OpenDP's discrete Gaussian when asked and answers with the seconds that it took.

Usage: peer_opendp.py PARAMETERS SCALE. Each line of input is a number of draws; each line of output is JSON.
"""

import json
import sys
import time

import opendp.prelude as dp


def main() -> None:
    parameters, scale = int(sys.argv[1]), float(sys.argv[2])
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int), size=parameters), dp.l2_distance(T=int)
    draw = dp.m.make_gaussian(*space, scale=scale)
    zeros = [0] * parameters
    for line in sys.stdin:
        times = int(line)
        start = time.perf_counter()
        for _ in range(times):
            draw(zeros)
        print(json.dumps({"seconds": (time.perf_counter() - start) / times}), flush=True)


if __name__ == "__main__":
    main()
