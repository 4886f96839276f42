"""Small whole programs to begin with; README.md says how to start them. Neither the server nor a client needs them."""
