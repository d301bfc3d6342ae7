"""Making of the model bundled: `python -m recipe --help`, and MODEL_CARD.md beside this file.

Needs the optional extra: pip install '.[recipe]' (torch and tokenizers).
"""
