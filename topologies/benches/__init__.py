"""The benches: for each layout, what is run on it and what must come out."""
