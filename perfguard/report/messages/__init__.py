"""The catalogue of messages: the only place where facts become English, one entry a code.

Front ends, `report` and `integrations` may enter, by `describe`.
"""
