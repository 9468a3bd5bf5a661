"""Will this pair silently fail? Findings from configs and headers alone. Read pair.py, then any check."""
