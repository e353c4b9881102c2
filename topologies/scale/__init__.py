"""`make bench-scale`: how the cost of the service grows with the number of bridges."""
