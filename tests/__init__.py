"""How we know. tests/README.md says what lies where and how to run one."""
