"""Runs a layout as a network: Mininet, switches, shaped links, an Open vSwitch and a service.

It imports `graph`.
"""
