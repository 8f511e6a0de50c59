"""Recomputes every published version of an exported federation from its sealed updates, with Python integers alone.

Usage: python recompute.py EXPORT_DIR, made by `hushgrad-server export` of a server that ran with keep_sealed.
"""

import hashlib
import json
import math
import struct
import sys
from fractions import Fraction
from pathlib import Path


def main(export: Path) -> int:
    terms = json.loads((export / "terms.json").read_text())
    versions = json.loads((export / "manifest.json").read_text())["versions"]
    g, p, numerators = terms["grid_exponent"], terms["step_exponent"], terms["step_numerators"]
    initial = (export / "initial.f32").read_bytes()
    d = len(initial) // 4
    model = [round(Fraction(w) * Fraction(2) ** (p - g)) for w in struct.unpack(f"<{d}f", initial)]
    wrong = 0
    for version in versions:
        for update in version["updates"]:
            sealed = (export / "sealed" / update["participant"] / f"{update['round']}.update").read_bytes()
            if hashlib.sha256(sealed).hexdigest() != update["digest"]:
                raise SystemExit(f"sealed bytes of {update} do not have their digest")
            step = numerators[min(update["round"], len(numerators) - 1)]
            model = [m - step * u for m, u in zip(model, struct.unpack(f"<{d}i", sealed[192:]), strict=True)]
        published = struct.pack(f"<{d}f", *(math.ldexp(float(m), g - p) for m in model))
        kept = export / "versions" / f"{version['version']}.f32"
        same = published == kept.read_bytes() and hashlib.sha256(published).hexdigest() == version["sha256"]
        wrong += not same
    print(f"{len(versions)} versions recomputed, {wrong} differ")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
