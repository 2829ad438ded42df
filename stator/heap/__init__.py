"""The shadow heap: stand-ins for everything that comes from outside the trace."""
