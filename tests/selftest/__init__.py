"""Tests of selftest: that each of its checks can fail, and that nothing else passes for a pass."""
