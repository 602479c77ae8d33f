"""What exists only for comparison: importing this package makes it available by name.

``penstock.runtime`` and ``penstock.graph`` offer plug-in points, small dictionaries by name; the modules here add to
them. Then ``db.configure`` takes the names as it takes its own.

| plug-in point | what is added here |
|---|---|
| ``runtime.strategies.STRATEGIES`` | round-robin, chain, min-cost, min-latency, biggest-queue, flow |
| ``runtime.lanes.LANES`` (``mode``) | weak, strong1, strong2 |
| ``runtime.placement.PLACEMENTS`` | segment, chain |
| ``runtime.owners.ARCHITECTURES`` | pool, signalled |
| ``runtime.buffer.BUFFERS`` | synch, monitored, linked, swapped |
| ``graph.masters.MASTERS`` | naive |

``papers`` has the experiments.
"""

from experiments import lanes, masters, placements, pool, strategies, supply

__all__ = ["lanes", "masters", "placements", "pool", "strategies", "supply"]
