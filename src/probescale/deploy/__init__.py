"""Where a small model goes: to ONNX, onto a bench, to work on texts, to the hub."""
