"""Commands that come with this protocol."""
