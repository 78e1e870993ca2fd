"""`opentrn run`: runs a script, watches its steps, and says how long each would take on the chip and why.

The script runs in a child process (child.py), which sends what it sees over a pipe (channel.py), so that a script which
crashes still leaves a report of the steps it finished. summary.py turns the messages into numbers, render.py and
picture.py into something to look at.
"""
