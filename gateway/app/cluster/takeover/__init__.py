"""What survivors do when a node has failed (P17): who takes over, in which stages, and what is cleaned up later."""
