"""What the planner fixes in advance about sharing links; a plan states it, and the judge reads it there.

Eight chunks hide all but an eighth of the shorter part of an exchange behind the longer one; half of a link for each of
messages and gradients lets neither starve, whichever is first.
"""

from models.transport import TransportPolicy

POLICY = TransportPolicy()
