"""The best prediction without settings: experts on learned maps, mixed by what each would gain.

kinds     which experts there are
scaling   inputs and targets brought to unit size
maps      nested features of a learned kernel
mixture   weights without a rate to choose
kept      rows for the pilots to come
bank      all of it: learn, predict
"""
