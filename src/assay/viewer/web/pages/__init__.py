"""The data of each page: one module per page, and the parts of a document's page that are larger."""
