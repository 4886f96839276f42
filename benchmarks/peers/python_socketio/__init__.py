"""A python-socketio server."""
