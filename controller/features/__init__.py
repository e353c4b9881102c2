"""The features of a bridge besides forwarding, each in one module, and their base class `Feature`."""
