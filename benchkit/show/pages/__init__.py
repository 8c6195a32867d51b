"""What each page says: functions of data and the state of its filters that return a `Page`.

A page has no Panel, no HTML and reads no files; `benchkit.show.render` draws it.
"""
