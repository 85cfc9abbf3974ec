"""Where the nodes of a graph without cycles are drawn: in layers, each node in one behind all that it needs. Pure.

Layers go from top to bottom; those of a graph that would be wider than it may be, and narrower so, from left to right.

The way of Sugiyama: nodes are put into layers by their longest way from the top; an edge that passes through layers gets a
waypoint in each; the order within the layers is sorted by the neighbours' places until fewer lines cross no more; then each
layer is moved as near to its neighbours as its order and the room between nodes allow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

MOST_EDGES: Final = 400
"""Of a graph with more, those that follow from others are not drawn."""
_MOST_WAYPOINTS: Final = 1_000
"""Of a graph that would need more, lines go straight."""
_SWEEPS: Final = 8
_WAYPOINT_WIDTH: Final = 0.25
"""How much of a node's room a waypoint takes."""


@dataclass(frozen=True, slots=True)
class Spacing:
    """In pixels."""

    node_width: float = 176
    node_height: float = 44
    gap: float = 24
    """Between the nodes of a layer."""
    layer_gap: float = 36
    """Between layers, if they go down; half as much again, if they go to the right."""
    margin: float = 8
    widest: float = 720
    """From where on layers may go to the right."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    x: float
    """Of its left side."""
    y: float
    """Of its upper side."""
    layer: int


@dataclass(frozen=True, slots=True)
class GraphEdge:
    source: str
    target: str
    points: tuple[tuple[float, float], ...]
    """From the side of the source to that of the target."""
    goes_down: bool
    """To the right, if not."""

    @property
    def path(self) -> str:
        """As SVG draws it: a curve that leaves and arrives at a right angle to the sides of the nodes."""
        pieces = ["M" + _point(*self.points[0])]
        for (x, y), (to_x, to_y) in pairwise(self.points):
            if x == to_x or y == to_y:
                pieces.append("L" + _point(to_x, to_y))
                continue
            middle_x, middle_y = (x + to_x) / 2, (y + to_y) / 2
            bends = ((x, middle_y), (to_x, middle_y)) if self.goes_down else ((middle_x, y), (middle_x, to_y))
            pieces.append("C" + " ".join(_point(*each) for each in (*bends, (to_x, to_y))))
        return "".join(pieces)


@dataclass(frozen=True, slots=True)
class GraphLayout:
    nodes: dict[str, GraphNode]
    edges: list[GraphEdge]
    width: float
    height: float


def layout(needs: Mapping[str, Sequence[str]], spacing: Spacing | None = None) -> GraphLayout:
    """`needs` names, for each node, those above it; a name that is no node of the graph is left out. There is no cycle."""
    spacing = spacing or Spacing()
    edges = [(need, node) for node, above in needs.items() for need in dict.fromkeys(above) if need in needs]
    layer_of = layers(needs)
    if len(edges) > MOST_EDGES:
        edges = _without_shortcuts(edges, layer_of)
    ways = _waypoints(edges, layer_of)
    rows = _ordered(_rows(layer_of, ways), _neighbours(ways))
    centres = _centres(rows, _neighbours(ways))
    drawn = _drawn(layer_of, ways, centres, spacing, goes_down=True)
    if drawn.width <= spacing.widest:
        return drawn
    return min(drawn, _drawn(layer_of, ways, centres, spacing, goes_down=False), key=lambda each: each.width)


def layers(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """For each node, the number of nodes on the longest way down to it."""
    found: dict[str, int] = {}
    for start in needs:
        waiting = [start]
        while waiting:
            node = waiting[-1]
            above = [need for need in needs[node] if need in needs]
            missing = [need for need in above if need not in found]
            if missing:
                waiting += missing
            else:
                waiting.pop()
                found[node] = 1 + max((found[need] for need in above), default=-1)
    return {node: found[node] for node in needs}


def crossings(upper: Sequence[Hashable], lower: Sequence[Hashable], lines: Sequence[tuple[Hashable, Hashable]]) -> int:
    """How many of the lines between two rows cross."""
    above, below = _places(upper), _places(lower)
    ends = sorted((above[a], below[b]) for a, b in lines if a in above and b in below)
    count = 0
    seen: list[int] = []
    for _, place in ends:
        at = bisect_right(seen, place)
        count += len(seen) - at
        seen.insert(at, place)
    return count


_Spot = tuple[str, ...]
"""A node by its name alone, or a waypoint: source, target and the layer."""
_Way = tuple[_Spot, ...]


def _without_shortcuts(edges: list[tuple[str, str]], layer_of: Mapping[str, int]) -> list[tuple[str, str]]:
    """The edges of which no longer way leads from the one end to the other."""
    below: dict[str, list[str]] = {}
    for source, target in edges:
        below.setdefault(source, []).append(target)
    reached: dict[str, set[str]] = {}
    for node in sorted(layer_of, key=lambda node: -layer_of[node]):
        followers = below.get(node, [])
        reached[node] = set(followers).union(*(reached[each] for each in followers))
    return [
        (source, target)
        for source, target in edges
        if not any(target in reached[each] for each in below[source] if each != target)
    ]


def _waypoints(edges: Sequence[tuple[str, str]], layer_of: Mapping[str, int]) -> list[_Way]:
    """Each edge with its waypoints."""
    count = sum(layer_of[target] - layer_of[source] - 1 for source, target in edges)
    if count > _MOST_WAYPOINTS:
        return [((source,), (target,)) for source, target in edges]
    return [
        (
            (source,),
            *((source, target, str(layer)) for layer in range(layer_of[source] + 1, layer_of[target])),
            (target,),
        )
        for source, target in edges
    ]


def _rows(layer_of: Mapping[str, int], ways: Sequence[_Way]) -> list[list[_Spot]]:
    rows: list[list[_Spot]] = [[] for _ in range(1 + max(layer_of.values(), default=-1))]
    for node, layer in layer_of.items():
        rows[layer].append((node,))
    for way in ways:
        for spot in way[1:-1]:
            rows[int(spot[2])].append(spot)
    return rows


@dataclass(frozen=True, slots=True)
class _Neighbours:
    above: dict[_Spot, list[_Spot]]
    below: dict[_Spot, list[_Spot]]


def _neighbours(ways: Sequence[_Way]) -> _Neighbours:
    above: dict[_Spot, list[_Spot]] = {}
    below: dict[_Spot, list[_Spot]] = {}
    for way in ways:
        for upper, lower in pairwise(way):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    return _Neighbours(above, below)


def _places(row: Sequence[Hashable]) -> dict[Hashable, int]:
    return {spot: place for place, spot in enumerate(row)}


def _ordered(rows: list[list[_Spot]], near: _Neighbours) -> list[list[_Spot]]:
    """The rows in the order with the fewest crossings that a few sweeps down and up have found."""
    lines = [(upper, lower) for upper, those in near.below.items() for lower in those]
    best, fewest = rows, _all_crossings(rows, lines)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        rows = _swept(rows, near, down=sweep % 2 == 0)
        count = _all_crossings(rows, lines)
        if count < fewest:
            best, fewest = rows, count
    return best


def _all_crossings(rows: Sequence[Sequence[_Spot]], lines: Sequence[tuple[_Spot, _Spot]]) -> int:
    row_of = {spot: number for number, row in enumerate(rows) for spot in row}
    between: dict[int, list[tuple[Hashable, Hashable]]] = {}
    for upper, lower in lines:
        if row_of[lower] == row_of[upper] + 1:
            between.setdefault(row_of[upper], []).append((upper, lower))
    return sum(crossings(rows[number], rows[number + 1], those) for number, those in between.items())


def _swept(rows: Sequence[Sequence[_Spot]], near: _Neighbours, *, down: bool) -> list[list[_Spot]]:
    """Each row sorted by the mean place of the neighbours in the rows before it; what has none keeps its place."""
    found = [list(row) for row in rows]
    fixed = near.above if down else near.below
    places: dict[_Spot, int] = {}
    for number in range(len(found)) if down else reversed(range(len(found))):
        row = found[number]
        wanted = {
            spot: sum(known) / len(known)
            if (known := [places[each] for each in fixed.get(spot, ()) if each in places])
            else place
            for place, spot in enumerate(row)
        }
        row.sort(key=lambda spot: wanted[spot])
        places.update({spot: place for place, spot in enumerate(row)})
    return found


def _centres(rows: Sequence[Sequence[_Spot]], near: _Neighbours) -> dict[_Spot, float]:
    """Where the middle of each spot is, in widths of a node: near its neighbours, in its row's order, nothing overlapping."""
    centres: dict[_Spot, float] = {}
    for row in rows:
        offsets = _offsets(row)
        centres |= {spot: offset - offsets[-1] / 2 for spot, offset in zip(row, offsets, strict=True)}
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for spot in row:
                those = [centres[each] for each in (*near.above.get(spot, ()), *near.below.get(spot, ()))]
                wanted.append(sum(those) / len(those) if those else centres[spot])
            centres.update(zip(row, _spread(wanted, _offsets(row)), strict=True))
    return centres


def _offsets(row: Sequence[_Spot]) -> list[float]:
    """The places of a row without room to spare."""
    found = [0.0]
    for left, right in pairwise(row):
        found.append(found[-1] + (_room(left) + _room(right)) / 2)
    return found[: len(row)]


def _room(spot: _Spot) -> float:
    return 1.0 if len(spot) == 1 else _WAYPOINT_WIDTH


def _spread(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones, by least squares, that keep the order and the offsets between neighbours.

    Without the offsets it is the best rising row, and that is found by making one of each two that fall.
    """
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (other * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    level = [mean for mean, count in blocks for _ in range(count)]
    return [base + offset for base, offset in zip(level, offsets, strict=True)]


def _drawn(
    layer_of: Mapping[str, int],
    ways: Sequence[_Way],
    centres: Mapping[_Spot, float],
    spacing: Spacing,
    *,
    goes_down: bool,
) -> GraphLayout:
    size = (spacing.node_width, spacing.node_height)
    within, deep = size if goes_down else size[::-1]
    layer_gap = spacing.layer_gap if goes_down else spacing.layer_gap * 1.5
    half, step = within / 2, within + spacing.gap
    # A waypoint may stand as far out as the side of a node does.
    first = min((centre if len(spot) == 1 else centre + half / step for spot, centre in centres.items()), default=0.0)

    def point(spot: _Spot, layer: int, *, at_end: bool) -> tuple[float, float]:
        """The middle of a side, where lines arrive, or of the one at the end, where they leave."""
        across = round(spacing.margin + half + (centres[spot] - first) * step, 1)
        along = spacing.margin + layer * (deep + layer_gap) + deep * at_end
        return (across, along) if goes_down else (along, across)

    nodes = {}
    for node, layer in layer_of.items():
        x, y = point((node,), layer, at_end=False)
        nodes[node] = GraphNode(round(x - half, 1), y, layer) if goes_down else GraphNode(x, round(y - half, 1), layer)
    edges = []
    for (source,), *between, (target,) in ways:
        points = [point((source,), layer_of[source], at_end=True)]
        for spot in between:
            points += [point(spot, int(spot[2]), at_end=at_end) for at_end in (False, True)]
        points.append(point((target,), layer_of[target], at_end=False))
        edges.append(GraphEdge(source, target, tuple(points), goes_down))
    corners = [
        *((node.x + spacing.node_width, node.y + spacing.node_height) for node in nodes.values()),
        *(each for edge in edges for each in edge.points),
        (0.0, 0.0),
    ]
    width, height = (round(max(each) + spacing.margin, 1) for each in zip(*corners, strict=True))
    return GraphLayout(nodes, edges, width, height)


def _point(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
