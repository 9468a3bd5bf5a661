"""Acceptance without running the drafter live: prompts, streams, and the walk along them. Read `walk.py` first."""
