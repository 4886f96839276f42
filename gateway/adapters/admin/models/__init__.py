"""What goes in and out of the admin API, as types: requests are checked by them, the OpenAPI document says them."""
