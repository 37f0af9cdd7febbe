"""Measurements: `drafter bench`, the simulator, benchmarks, reports, pictures. Other packages never import the lab."""
