"""A module for each family of commands. What needs torch is imported once the flags are right."""
