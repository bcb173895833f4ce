"""Pravega: the segment store's protocol, in the dialect of its first proposal too."""
