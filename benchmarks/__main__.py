"""Run the benchmarks: `python -m benchmarks [section ...] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import traceback
from typing import Any

from benchmarks.common import Section, machine

SECTIONS = ("single", "network", "sparse", "memory", "scaling", "startup", "cli", "ranks")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"any of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    args = parser.parse_args()
    for name in args.section:
        if name not in SECTIONS:
            parser.error(f"unknown section {name!r}: choose from {', '.join(SECTIONS)}")
    where = machine()
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    print(
        "Compilation and warm-up are never timed, except in startup. What runs on one core is "
        "timed by that thread's processor time,\nthe rest on the wall clock. Figures are medians "
        "of rounds in turns, A, B, A, B..., and ratios medians of the rounds' ratios.\n"
    )
    done: dict[str, Section] = {}
    for name in args.section or SECTIONS:
        done[name] = attempt(name)
        print(done[name].text(), flush=True)
    summary(done)
    if args.json:
        found: dict[str, Any] = {name: section.record() for name, section in done.items()}
        with open(args.json, "w") as file:
            json.dump({"machine": where, "sections": found}, file, indent=1)
    if any(section.failed for section in done.values()):
        raise SystemExit(1)


def attempt(name: str) -> Section:
    """One section; its failure is reported, and the others continue."""
    try:
        found: Section = importlib.import_module(f"benchmarks.{name}").measure()
    except Exception:
        return Section(name, "", failed=traceback.format_exc())
    return found


def summary(done: dict[str, Section]) -> None:
    verdicts = [(name, row) for name, section in done.items() for row in section.rows]
    held = [row.reached for _, row in verdicts if row.reached is not None]
    print(f"{sum(held)} of {len(held)} targets reached.")
    for name, row in verdicts:
        if row.reached is False:
            print(f"NOT reached: {name}: {row.what}: {row.figure}, target {row.target}")
    for name, section in done.items():
        if section.failed:
            print(f"FAILED: {name}")
        if section.skipped:
            print(f"skipped: {name}: {section.skipped}")


if __name__ == "__main__":
    main()
