"""Our lossless decoding. Read `loop.py` first: draft, verify, accept, commit on one screen.

`decode/hf/` alone touches transformers. The cache, the acceptance rules and the noise know nothing of it.
"""
