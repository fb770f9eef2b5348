"""What everything else stands on, and what knows of no learning.

errors, arrays, random_numbers, fingerprints
files          one container of named arrays, written whole or not at all; config: TOML as records
progress       bars on a terminal
machine_code   compiled functions that are kept on disk; unlocked: BLAS that lets other threads run
"""
