"""The charts: each module turns records into a `Figure`, whose traces are JSON and whose data stand in tables too."""
