"""Write a hub's model card, and the pack that llama.cpp asks of a new type, from results of commands."""
