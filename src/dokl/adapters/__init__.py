"""dokl behind the interfaces of others: `river`, and models as `onnx` graphs and `c_source`."""
