"""Output-side Hessians: which errors in the outputs of matrices change a model's predictions."""
