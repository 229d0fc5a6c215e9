"""The paper's figures, drawn with matplotlib, each with its numbers as CSV beside it.

matplotlib and scikit-learn (the extra ``report``) are imported when a figure is drawn.
"""
