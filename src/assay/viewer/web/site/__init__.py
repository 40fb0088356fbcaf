"""A static copy of the viewer's pages: files that a browser opens from a disk or from any web host."""
