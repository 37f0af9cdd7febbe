"""What both HTTP services tell about themselves: metrics, logs, health."""
