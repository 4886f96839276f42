"""The JavaScript client in Chromium under faults, with an account of its own."""
