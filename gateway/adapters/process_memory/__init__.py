"""The memory of this process, as Linux tells it."""

from gateway.adapters.process_memory.linux import LinuxMemory

__all__ = ["LinuxMemory"]
