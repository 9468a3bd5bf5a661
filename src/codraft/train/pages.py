"""Where tensors of a training step lie."""

import os


def large_pages() -> None:
    """Ask for pages of 2 MB, where Linux gives them to those who ask; before torch's first allocation.

    A step takes and drops tensors of tens of MB, and what the system clears page by page of 4 KB took a third of a step
    (docs/log.md). torch reads the variable itself; what the user set stays.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
