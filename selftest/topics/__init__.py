"""One module a topic; selftest/topic.py has their order."""
