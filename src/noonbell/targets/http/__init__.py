"""The HTTP target: one attempt is one call. `target` carries it out, `guard` decides which addresses may be dialled."""
