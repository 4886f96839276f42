"""From the streams of the grid to the sockets."""
