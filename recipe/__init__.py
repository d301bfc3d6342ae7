"""How the model in the box was made: `python -m recipe --help`, and MODEL_CARD.md beside this file.

Needs the optional extra: pip install '.[recipe]' (torch and tokenizers).
"""
