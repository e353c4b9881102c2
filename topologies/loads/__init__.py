"""What end systems do during a run: web users, streams, probes, live migrations."""
