"""Checkpoint files and vocabularies, read without torch."""
