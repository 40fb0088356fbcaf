"""What is wrong with a task before anybody runs it: one module per thing that is looked at."""
