"""Trained scales: factors of a quantized model's rows and norms that lower its KLD, with the same codes."""
