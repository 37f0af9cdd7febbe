"""What people look at: the table in the terminal, the page, the picture, and runs side by side."""
