"""Files of rows: read, learned, predicted, exported, planned.

readers   CSV, JSON lines, LIBSVM, Parquet, a chunk at a time
models    what predicts raw rows, and its files
export    models as ONNX graphs and as C; dask: least squares over more rows than one machine holds
plan      advice before learning
report    tables and pictures
jobs      what the commands do, as functions
"""
