"""The paper run again, and what it and this are measured against.

reproduce   its figures and tables, beside what it printed
baselines   what it compares with, and what was published since
datasets    files from elsewhere, fetched and checked
bench       side by side with what a user would pick instead
jobs        `dokl run` and `dokl demo`, as functions
"""
