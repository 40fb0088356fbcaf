"""Output of runs: terminal tables, comparisons and analyses, exports, reports, notebooks and web pages.

terminal      what the commands print: progress, results, the list of runs
results       the results of a run, collected once for every output
documents     documents prepared for display: prompts, failure reasons, statistics
comparison    two runs compared, with intervals and p-values; analysis: gate, power, explain, calibrate, lint
matrix        several runs in one table
charts        figures for reports, pages and notebooks
exports       files for other programs
report        one HTML file, or a PDF
web           `assay view`
sinks         progress reported to external trackers

The viewer reads the store. It never starts a run and never runs task code.
"""
