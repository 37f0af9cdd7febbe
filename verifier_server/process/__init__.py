"""The process around the service: sockets, open files, signals, and the model files it maps."""
