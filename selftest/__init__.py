"""The in-image tests. They ship in the image, and run from a checkout on any machine with torch."""
