"""Run them: `python -m benchmarks.networks [section ...] [--quick] [--json FILE]`.

Rows are read from DOKL_DATA/streams, by default ../shared/data/streams beside the checkout. With
--quick without exchanges at every row, with fewer realizations, and a tenth of the nodes.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.common import machine
from benchmarks.networks import examples, kin40k, published, scale

SECTIONS = {
    "kin40k": kin40k.measure,
    "examples": examples.measure,
    "published": published.measure,
    "scale": scale.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"any of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    for name in options.section:
        if name not in SECTIONS:
            parser.error(f"unknown section {name!r}: choose from {', '.join(SECTIONS)}")
    where, done = machine(), {}
    print(", ".join(f"{key} {value}" for key, value in where.items()), "\n")
    for name in options.section or SECTIONS:
        section = SECTIONS[name](options.quick)
        done[name] = section.record()
        print(section.text(), flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"machine": where, "sections": done}, file, indent=1)


if __name__ == "__main__":
    main()
