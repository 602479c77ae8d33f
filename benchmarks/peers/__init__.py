"""Jobs on other systems: each script is run by the Python of its system, without Penstock."""
