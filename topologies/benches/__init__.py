"""The benches: what runs on each layout, and what is expected."""
