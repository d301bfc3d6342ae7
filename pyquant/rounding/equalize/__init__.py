"""Give a model's channels other scales, so that they lose less when it is quantized; it computes the same."""
