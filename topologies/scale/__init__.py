"""How the service's cost grows with bridges: `make bench-scale`."""
