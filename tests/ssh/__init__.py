"""The second way in: a real sshd in the image, and a real client."""
