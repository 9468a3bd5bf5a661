"""Scripts that other environments run: each imports its engine and nothing of codraft."""
