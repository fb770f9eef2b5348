"""What one learner is, alone in the world.

columns      raw columns into inputs; answers: labels as targets, scores as labels
kernels, features, losses, schedules
squares      exact recursive least squares; sums, which add up and subtract
scales, mixture, intervals, calibration, metrics
experts      the bank that puts them together
"""
