"""What a server keeps: uploads and tokens in SQLite or PostgreSQL, the audit log, backups."""
