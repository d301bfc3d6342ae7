"""Run models in llama.cpp."""
