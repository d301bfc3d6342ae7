"""Results of a study, and what metrics make of them: columns, sentences, figures."""
