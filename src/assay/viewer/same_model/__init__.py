"""`assay same`: do two servers, quantisations, engines or dates serve the same model?"""
