"""Does what a model writes have the form that was asked for, and is it right?"""
