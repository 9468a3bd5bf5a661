"""One file per mechanism behind the seam of `decode/drafter.py`; `registry.py` builds them from their specs."""
