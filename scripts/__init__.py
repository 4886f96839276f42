"""Programs for those who work on the project: what is installed, and what is generated."""
