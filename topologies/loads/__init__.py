"""The loads of a run: web users, TCP streams, probes, live migrations."""
