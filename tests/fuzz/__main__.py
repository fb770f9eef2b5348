"""The command line: see `fuzz`."""

import argparse
import sys
import traceback
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does
sys.path.insert(1, str(Path(__file__).parents[1] / "live"))

from fuzz import run
from fuzz.targets import TARGETS


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (0)")
    parser.add_argument("--most", type=int, default=10, help="findings to stop after (10)")
    parser.add_argument("--input", type=Path, help="read this file once, instead")
    given = parser.parse_args()
    warnings.simplefilter("error")
    failed = False
    for name in given.names or TARGETS:
        if name not in TARGETS:
            parser.error(f"no target {name!r}: {', '.join(TARGETS)}")
        with TemporaryDirectory(prefix="dokl-fuzz-") as folder:
            target = TARGETS[name](Path(folder))
            if given.input is not None:
                n, found = 1, [run.examine(target, given.input.read_bytes())]
                found = [each for each in found if each is not None]
            else:
                n, found = run.fuzz(target, seconds=given.seconds, seed=given.seed, most=given.most)
        failed |= bool(found)
        print(f"{name}: {n:,} inputs, {len(found)} findings", flush=True)
        for each in found:
            if each.error is not None:
                traceback.print_exception(each.error, limit=-4, chain=False)
            print(f"  {each.text}\n  {each.save()}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
