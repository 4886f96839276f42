"""What paths are: followed in the grid, changed by administrators and by the file of the configuration."""
