"""Statistics of one run: tokens by source, times, and what was waited for."""
