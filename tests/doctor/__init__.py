"""Tests of doctor: for each check a machine on which it finds something."""
