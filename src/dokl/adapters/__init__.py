"""dokl with others: `river`, `dask`, and models written as `onnx` graphs and as `c_source`."""
