"""The model `human`: a person at the terminal answers.

model.py         the adapter
questions.py     how requests are shown and how typed lines are parsed
media_files.py   images, audio and video as files that a person can open
terminal.py      the controlling terminal
"""

from assay_plugin_human.model import HumanModel

__all__ = ["HumanModel"]
