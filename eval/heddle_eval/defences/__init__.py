"""What hides a page: splitting, padding and delay, each as published. Start at :func:`parse`."""
