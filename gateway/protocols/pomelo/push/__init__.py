"""Pushes to Pomelo clients: from HTTP requests and from an outbox directory."""
