"""The kinds of tables that the Spark job makes, one module each: see `gateway.sink`."""
