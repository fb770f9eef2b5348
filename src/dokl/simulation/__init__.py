"""Simulations: one driver draws realizations, feeds them piece by piece and records.

driver      from seeds to a Trace; an `Executor` says how pieces are run
recording   what can be recorded, by name, and the record of one realization
"""
