"""What a journal cannot be asked quickly: a side index of its documents, in columns, and a file of their texts.

The journal stays as it is: appended to by its run, read by everybody. The index is made from it, kept under
`ASSAY_HOME`, extended when the run goes on, and may be thrown away at any time.
"""
