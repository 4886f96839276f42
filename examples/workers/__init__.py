"""Work that is shared among processes, with one result for each piece, whatever is killed."""
