"""Record what a draft would say along texts of its target."""
