"""What a bridge can do besides forwarding, each feature in one file, and what all of them have in common."""
