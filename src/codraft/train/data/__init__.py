"""Training data: prompts that were read or written by the target, answers by the target, a token file. Read job.py
first."""
