"""What neurons mean, which of them decide, and how decisions differ."""
