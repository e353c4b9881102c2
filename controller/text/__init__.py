"""Text for people: columns, bars and colours, bridges as tables, strange texts made safe.

`show`, `top`, answers and errors are written with it. It knows nothing of teaming, and imports no
other room.
"""
