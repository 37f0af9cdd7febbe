"""The results of a run: measures with their intervals, files of requests and samples, a table, a page, a picture."""
