"""A minimal aiohttp WebSocket server."""
