"""Detection and repair of damaged database files."""
