"""The benches: the scenarios and the expectations of each layout."""
