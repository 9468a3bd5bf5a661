"""The main job: one target, one workload, one folder, one verdict. Read `run.py` first."""
