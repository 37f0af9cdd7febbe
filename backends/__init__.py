"""Engines behind one small contract: `contract` says what an engine is, `registry` finds one by name."""
