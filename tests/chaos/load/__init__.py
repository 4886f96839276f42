"""The load: sessions that publish, listen, come and go, and note everything they are told."""
