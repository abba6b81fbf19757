"""What the tests of images and the browser share. No test lies here."""
