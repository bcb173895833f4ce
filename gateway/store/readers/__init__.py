"""The words of those who read the spool: the Spark job, the audit, jobs of others.

In come their small files; out come what they have read, deleted and found. Nothing
here imports Spark.

    lake       what the tables have
    deleted    ranges that were taken out of the tables on purpose
    job_word   how far the job is behind a bucket
    consumers  what jobs of others have read, so that files stay until then
    audited    what the last audit found
"""
