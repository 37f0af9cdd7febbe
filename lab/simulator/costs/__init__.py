"""The cost of a forward pass: by a stated line, by measured tables, by a roofline of a model on a device, or
by the profiles of another simulator. All implement `PassCost`."""
