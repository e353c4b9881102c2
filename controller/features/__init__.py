"""The features of a bridge besides forwarding, one in each module. To add a feature, add a module."""
