"""What several test files use, in one place."""
