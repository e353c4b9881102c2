"""Layouts as graphs: their parts, ports, speeds of links, and drawings.

Nothing here needs Mininet, a switch, or root.
"""
