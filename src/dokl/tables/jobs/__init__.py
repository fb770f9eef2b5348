"""Files in, models and predictions out: train, predict, evaluate, inspect."""
