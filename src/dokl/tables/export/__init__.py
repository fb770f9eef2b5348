"""Models written as graphs (`onnx`) and as C (`c_source`), from one `formula`."""
