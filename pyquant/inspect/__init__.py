"""Look at the codes and the errors of a model."""
