"""Who comes in from the network, before anything is known of them: places, and a loop that accepts.

A connection counts from the moment it is accepted, before any handshake, and descriptors are kept
back for the rest of the process; so a flood fills places and nothing else.
"""

from dokl.live.doors.accepting import Door, listening, places_for
from dokl.live.doors.places import DoorPlaces, Place, Rank

__all__ = ["Door", "Place", "DoorPlaces", "Rank", "listening", "places_for"]
