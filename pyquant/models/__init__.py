"""Read model files: GGUF and pqz, their tensors, types and names."""
