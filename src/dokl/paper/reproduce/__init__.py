"""The paper's figures and tables, run again and put beside what it printed.

A paper is a folder: `settings.toml` says how its experiments are run, `expected.toml` what should
come out and who says so, and every result carries where it came from.

>>> from dokl.paper.reproduce.parts import PARTS, choose_parts
>>> [part.name for part in choose_parts("fig1", ("a",))]
['fig1a']
"""
