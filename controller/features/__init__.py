"""Implements a bridge's features other than forwarding, one per module."""
