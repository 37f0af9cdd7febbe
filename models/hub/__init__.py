"""Models by name: finds the files of `user/repo:tag` on a hub, fetches them into the cache that tools share."""
