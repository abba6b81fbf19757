"""Host-side programs behind the Makefile: standard library only, Python 3.9 and later."""
