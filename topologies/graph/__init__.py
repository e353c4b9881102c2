"""A layout as a graph: its parts, its ports, how fast its links are, and how it is drawn.

Nothing here needs Mininet, a switch, or root.
"""
