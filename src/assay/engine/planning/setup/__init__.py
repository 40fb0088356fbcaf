"""Creates and checks what a plan needs: the model, the judges, the journal."""
