"""Models as ONNX graphs: writing them, and running them with ONNX Runtime."""
