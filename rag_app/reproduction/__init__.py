"""The paper's experiments in a size that a laptop finishes, and what each of its claims comes to on the model at hand.

Feng & Watanabe, "Beyond the Unit Hypersphere" (arXiv 2602.09229). One file for an experiment, each a function of
(settings, folder) that gives figures; `claims` says what the paper claims and which figures decide it, by a rule of `measures`.
"""
