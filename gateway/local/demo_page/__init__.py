"""The page that `make up` serves: live values in a browser, and what a cut or a kill does to them."""
