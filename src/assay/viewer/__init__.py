"""What people see: tables, progress, exported files. Reads the store; starts nothing."""
