"""Text for people: columns, bars, colours, tables of bridges, and safe display of foreign text.

`show`, `top`, answers and errors use it. It is independent of teaming and imports no other room.
"""
