"""Harnesses that feed damaged input to everything that reads files, messages and requests.

Each target starts from valid input, changes it at random, and reads it as the package would. Input
may be accepted, or rejected by an error of `dokl.base.errors` with one line. Any other exception,
more than `run.SECONDS` of processor time or more than `run.MEGABYTES` of memory is a finding.

    python -m tests.fuzz                       all targets, 60 seconds each
    python -m tests.fuzz csv --seconds 600     one target for longer
    python -m tests.fuzz csv --input FILE      one input again, with its traceback

Inputs that once were findings are in `found/TARGET`; `tests/base/test_fuzz.py` reads them all.
"""
