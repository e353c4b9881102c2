"""Completion: what a shell offers for the word that is being typed."""
