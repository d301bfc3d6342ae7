"""What enters a model's matrices: collecting its second moments, and the files that hold them."""
