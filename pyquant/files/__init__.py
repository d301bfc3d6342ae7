"""Read and write files safely: complete outputs, temporary folders, texts, TOML, hashes."""
