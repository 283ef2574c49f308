"""The repair study."""
