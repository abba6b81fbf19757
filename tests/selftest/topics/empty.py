"""A topic that forgot its checks."""
