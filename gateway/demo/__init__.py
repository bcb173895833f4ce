"""The whole path on one machine, as a user would set it up, and the proof at the end.

scene      directory, certificates, configuration, and the traffic that is sent
stage      the processes: daemon, Spark job, senders; their progress and their end
scores     the Spark job, with a query beside it whose results are pushed back
players    game clients that listen for those
curtain    what the tables hold, the audit, where everything is
"""
