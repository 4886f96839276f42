"""Topics, selectors and lists of selections, and how they are matched."""
