"""torch's own sample databases, captured and compared with eager."""
