"""codraft: co-design toolkit for speculative decoding.

Read `decode/loop.py` first (lossless decoding on one screen), then `replay/walk.py` (why one stream gives the
acceptance length of every draft length), then `cost/step.py` (the one formula).
"""

__version__ = "0.1.0"
