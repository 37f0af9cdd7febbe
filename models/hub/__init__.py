"""Models by name: finds the files of `user/repo:tag` on a hub, and fetches them into the shared cache."""
