"""Tables of 16 values that codes stand for."""
