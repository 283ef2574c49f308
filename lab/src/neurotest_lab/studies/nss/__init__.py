"""The study of NSS: selecting mutated test images."""
