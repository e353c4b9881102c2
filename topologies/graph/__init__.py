"""Layouts as graphs: their parts, ports, link speeds, and drawings.

This package needs neither Mininet, nor a switch, nor root.
"""
