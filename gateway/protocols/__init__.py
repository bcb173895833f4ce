"""The wire formats that come with the gateway, and the code that they share."""
