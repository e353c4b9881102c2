"""Features of a bridge besides forwarding, each in one file, and their common base."""
