"""Run them: `python -m benchmarks.networks [section ...] [--quick] [--json FILE]`.

Rows are read from DOKL_DATA/streams, by default ../shared/data/streams beside the checkout. With
--quick without exchanges at every row, with fewer realizations, and a tenth of the nodes.
"""

from __future__ import annotations

import argparse

from benchmarks.common import run_sections
from benchmarks.networks import banks, examples, faulty, kin40k, published, scale

SECTIONS = {
    "banks": banks.measure,
    "many": banks.many,
    "faulty": faulty.measure,
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
    run_sections(parser, options, SECTIONS)


if __name__ == "__main__":
    main()
