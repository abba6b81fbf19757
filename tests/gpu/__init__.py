"""Tests that need a CUDA device. They run straight from a checkout: python3 -m pytest tests/gpu"""
