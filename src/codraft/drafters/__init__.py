"""One file per mechanism behind the seam of `decode/drafter.py`; `registry.py` alone knows them by name."""
