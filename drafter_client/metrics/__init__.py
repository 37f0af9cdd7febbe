"""Statistics of one run: tokens by source, times, and what the text waited for."""
