"""The daemon: what twistd starts, and how it tells people and systemd how it is."""
