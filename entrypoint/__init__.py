"""What happens when the container starts. Standard library only, Python 3.9 and later."""
