"""The process around the service: sockets, open files, signals, and mapped model files."""
