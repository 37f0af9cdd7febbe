"""What a forward pass takes: by a stated line, by tables that were measured, by a roofline of a model on a device, or
by the profiles of another simulator. All answer the one question of `PassCost`."""
