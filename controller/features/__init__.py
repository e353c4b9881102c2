"""The features of a bridge besides forwarding, one in each module: add a module for what a bridge is to do."""
