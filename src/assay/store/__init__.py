"""Everything on disk: journals, the response cache, run folders, indexes. The only package that contains SQL."""
