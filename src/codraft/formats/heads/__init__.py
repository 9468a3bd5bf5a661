"""Drafter checkpoints in one shape, whatever family wrote them. Read head.py first."""
