"""The contract of the built image, one topic a file."""
