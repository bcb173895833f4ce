"""Commands that RS.io brings: `gateway tap` and `gateway rsio-check`."""
