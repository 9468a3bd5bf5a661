"""Other people's engines, as files only: what to start for a decision. Never imports an engine."""
