"""Run them: `python -m benchmarks.streams [section ...] [--quick] [--json FILE]`.

Streams are read from DOKL_DATA/streams, by default ../shared/data/streams beside the checkout. With
--quick one seed, the short streams, and no learner that takes milliseconds a row. Other learners
take part where they are installed: pip install 'dokl[bench]'.
"""

from __future__ import annotations

import argparse

from benchmarks.common import run_sections
from benchmarks.streams import accuracy, data, long, peers, speed

SECTIONS = {
    "regression": accuracy.regression,
    "classification": accuracy.classification,
    "examples": accuracy.examples,
    "drift": accuracy.drift,
    "intervals": accuracy.coverage,
    "long": long.measure,
    "speed": speed.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"any of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    parser.add_argument("--only", default="", help="streams, with commas between")
    parser.add_argument("--alone", action="store_true", help="without other learners")
    options = parser.parse_args()
    data.ONLY.update(filter(None, options.only.split(",")))
    peers.ALONE.extend([True] * options.alone)
    run_sections(parser, options, SECTIONS)


if __name__ == "__main__":
    main()
