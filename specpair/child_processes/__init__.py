"""Programs and servers as child processes that end with their parent: for the demo, measurements and tests."""
