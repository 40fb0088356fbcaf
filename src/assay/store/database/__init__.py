"""SQLite access: schemas, migrations, the writer thread and file locks."""
