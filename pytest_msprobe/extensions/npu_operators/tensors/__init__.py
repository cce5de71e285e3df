"""Golden definitions: layouts, casts, selections and updates of tensors."""
