"""What can be held by reading the repository: no container is started."""
