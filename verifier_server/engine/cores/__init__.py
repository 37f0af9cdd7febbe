"""Engines over a core that decodes by itself: what such engines share, whatever the core is."""
