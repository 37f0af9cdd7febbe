"""The process around the service: its limit of open files, mapped model files, and that it is the only worker."""
