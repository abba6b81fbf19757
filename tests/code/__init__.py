"""The variant with VS Code in the browser."""
