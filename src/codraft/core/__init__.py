"""Vocabulary as types: specs, records, acceptance arithmetic, statistics. No torch. Read `acceptance.py` first."""
