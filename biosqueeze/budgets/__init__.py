"""Cuts by a budget: shapes, what each costs and what importance it keeps, and the choice of one that fits."""
