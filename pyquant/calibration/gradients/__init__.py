"""What errors in the outputs of matrices do to a model's predictions: second moments of gradients."""
