"""What clients ask for, executed in order."""
