"""Virtual time: the event loop with the real scheduler, links, and a drafter with the real controller."""
