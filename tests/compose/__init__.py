"""docker-compose.yml brought up by the real compose, and the way in over SSH that the host programs show."""
