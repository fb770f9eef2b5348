"""Cells as people write them: numbers, times, text and what is missing; and rows of them.

Files, data frames and requests are read by these rules, so that a model means the same column
wherever its rows come from. `frames` turns rows into columns, `forms` finds how the cells of a
column are written, `times` reads dates, `cells` reads one cell.
"""
