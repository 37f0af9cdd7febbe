"""What measures: `drafter bench`, the simulator, benchmarks, reports, pictures. The house never imports it."""
