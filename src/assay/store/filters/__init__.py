"""Filter expressions: `score<1 and length>400 and not truncated and answer~/\\d+/ and subject="Algebra"`.

`syntax` parses an expression, `names` resolves its names for one run, `evaluation` selects documents with the index of
the run, `completion` suggests how to continue. Regular expressions run in time linear in the text (`patterns`). The viewer,
`assay show --where` and `run.documents(where=...)` share the language.
"""
