"""Who does what when: plan, schedule, ask, judge, resume. The only package that knows all the others."""
