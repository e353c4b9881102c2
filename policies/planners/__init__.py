"""How units are placed on uplinks: one module per way of placing."""
