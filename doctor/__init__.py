"""The diagnosis, and what it knows of the machine. Standard library only, Python 3.9 and later."""
