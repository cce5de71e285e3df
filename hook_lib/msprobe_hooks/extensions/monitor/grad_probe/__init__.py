"""The gradient probe: a model's gradients at each call of its optimizer, and how far two runs agree in their signs.

Importing its modules loads isal, mindspore, msgspec and torch.
"""
