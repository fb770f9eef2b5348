"""Exact recursive least squares on features, with or without forgetting.

memory   what a learner knows: theta, its covariance, and the newest rows as a short list
rows     one row after another: the equations
blocks   the same in exact blocks, at the speed of matrix products
sums     what an infinite memory is a function of: counts, Z'Z, Z'y; they add up, and subtract
"""
