"""The client's half of a session as pure machines: hello, resume, requests, promises, credentials, coming back."""
