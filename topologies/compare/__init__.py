"""How contenders are compared: scenarios, results, figures, expectations."""
