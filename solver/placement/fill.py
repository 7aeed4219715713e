"""Inside one capacity group: which pool (zone) holds which stage groups.

Stage groups are laid out replica by replica, pool after pool, so at most one replica straddles two neighbouring pools.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.placement.problem import RouteCount


@dataclass(frozen=True)
class PooledRoute:
    """`num_replicas` replicas put rank p into pools[p], from group offset first_group[p] of that pool on."""

    pools: tuple[int, ...]
    num_replicas: int
    first_group: tuple[int, ...]


class _FillingPools:
    """The pools of one capacity group, filled one after another; (pool index, stage groups that it holds)."""

    def __init__(self, pools: list[tuple[int, int]]) -> None:
        self.pools = [(pool, groups) for pool, groups in pools if groups]
        self.position = 0
        self.filled = 0

    def capacity(self) -> int:
        """Stage groups left in the pool that is being filled."""
        return self.pools[self.position][1] - self.filled

    def take(self, groups: int) -> tuple[int, int]:
        """Use `groups` of the pool being filled: (pool, offset); goes on to the next pool when it is full."""
        pool, size = self.pools[self.position]
        offset, self.filled = self.filled, self.filled + groups
        if self.filled == size:
            self.position, self.filled = self.position + 1, 0
        return pool, offset


def fill(routes: tuple[RouteCount, ...], pools_u: list[list[tuple[int, int]]]) -> tuple[PooledRoute, ...]:
    """Pools for every stage group. `pools_u[u]` lists (pool index, groups it holds) of capacity group u.

    Replicas that fit whole into the pools being filled become one route; one that straddles two pools has its own.

    >>> fill((RouteCount((0, 0), 3),), [[(7, 3), (8, 4)]])
    (PooledRoute(pools=(7, 7), num_replicas=1, first_group=(0, 1)), \
PooledRoute(pools=(7, 8), num_replicas=1, first_group=(2, 0)), \
PooledRoute(pools=(8, 8), num_replicas=1, first_group=(1, 2)))
    """
    pools = [_FillingPools(pools) for pools in pools_u]
    filled: list[PooledRoute] = []
    for route in routes:
        missing = route.num_replicas
        ranks_in = {u: route.capacity_groups.count(u) for u in route.capacity_groups}
        while missing:
            block = min(missing, *(pools[u].capacity() // ranks for u, ranks in ranks_in.items()))
            filled.append(_take(route.capacity_groups, pools, max(block, 1)))
            missing -= max(block, 1)
    return tuple(filled)


def _take(groups_p: tuple[int, ...], pools: list[_FillingPools], replicas: int) -> PooledRoute:
    """A block of `replicas`, rank by rank: each rank's groups lie side by side in one pool."""
    taken = [pools[u].take(replicas) for u in groups_p]
    return PooledRoute(
        pools=tuple(pool for pool, _ in taken), num_replicas=replicas, first_group=tuple(offset for _, offset in taken)
    )
