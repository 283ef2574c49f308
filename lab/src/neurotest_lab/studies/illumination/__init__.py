"""The study of all generators at equal cost."""
