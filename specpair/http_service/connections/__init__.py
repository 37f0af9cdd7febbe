"""What a service's connections are held to, beyond what uvicorn holds them to."""
