"""The image as a VS Code dev container, brought up by the real dev-container CLI."""
