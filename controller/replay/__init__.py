"""Runs the unchanged engine on recorded traffic (`ovs-lbt replay`). Not loaded by the service."""
