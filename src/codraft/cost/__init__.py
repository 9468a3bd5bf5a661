"""The one formula, and the choice it leads to. Never imports `decode`: they meet in records."""
