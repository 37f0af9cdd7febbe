"""Parts of reports: cells of tables, tables in the terminal, HTML pages that need no other file, and parts of
charts as SVG."""
