"""Shares a service with other machines: its certificate, its keys, and the invitations by which machines join."""
