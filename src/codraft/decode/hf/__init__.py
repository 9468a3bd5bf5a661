"""The only package that touches transformers: loading, passes, caches, tokenizer and chat template."""
