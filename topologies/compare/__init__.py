"""How contenders are compared: who they are, scenarios, runs step by step, figures, expectations."""
