"""The gradient probe: a model's gradients at each call of its optimizer, and how far two runs agree in their signs."""
