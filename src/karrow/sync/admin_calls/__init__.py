"""Admin's calls without await, one file for each of its fields."""
