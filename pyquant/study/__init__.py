"""An experiment as one file: many models, quantizers and texts, run once each and reported together."""
