"""The lean client of the storm benchmarks: raw sockets, hand-made frames, one epoll loop, and every answer checked."""
