"""The best prediction without settings: experts on learned maps, mixed by what each would gain.

kinds       which experts there are
scaling     inputs and targets brought to unit size
ranks       inputs by their ranks
maps        nested features of a learned kernel
kept        rows for the pilots to come
bank        what there is: scalings, maps, experts, weights
pilots      scales and maps from the rows so far
rows        every expert predicts rows and learns them
pending     a pilot in the background, until its map is adopted
learn       rows are predicted, learned, and mixed
rest        experts that sleep and wake
folding     one vector for each map: what predicts, without matrices
predicting  means, variances
"""
