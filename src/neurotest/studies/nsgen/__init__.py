"""The study of NSGen."""
