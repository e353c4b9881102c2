"""A layout as a network that runs: Mininet, switches, links of a speed, an Open vSwitch and a service.

It imports `graph`.
"""
