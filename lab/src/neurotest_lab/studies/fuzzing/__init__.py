"""The study of coverage-guided fuzzing."""
