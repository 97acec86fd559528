"""The Python half of kilter: search, statistics and reports.

It never writes a kernel file and never reads the catalog: it asks the kilter binary, whose
messages are mirrored in :mod:`kilter_lab.messages`.
"""
