"""Does what a model generates have the form that was asked for, and is it right?"""
