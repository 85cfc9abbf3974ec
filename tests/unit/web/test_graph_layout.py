"""Where the nodes and lines of a graph are drawn."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.web.graph_layout import MOST_EDGES, Spacing, crossings, layers, layout

SPACING = Spacing()


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({}, {}),
        ({"a": []}, {"a": 0}),
        ({"a": [], "b": ["a"], "c": ["b"]}, {"a": 0, "b": 1, "c": 2}),
        ({"a": [], "b": ["a"], "c": ["a", "b"]}, {"a": 0, "b": 1, "c": 2}),
        ({"c": ["b"], "b": ["a"], "a": []}, {"c": 2, "b": 1, "a": 0}),
        ({"a": [], "x": [], "b": ["a", "x"]}, {"a": 0, "x": 0, "b": 1}),
        ({"b": ["gone"], "c": ["b", "gone"]}, {"b": 0, "c": 1}),
    ],
)
def test_a_node_stands_one_layer_below_the_lowest_that_it_needs(needs, expected):
    assert layers(needs) == expected


def test_a_chain_of_a_thousand_is_drawn_without_a_deep_stack():
    chain = {f"s{number}": [f"s{number - 1}"] if number else [] for number in range(1_000)}
    found = layout(dict(reversed(chain.items())))
    assert found.nodes["s999"].layer == 999
    assert len({node.x for node in found.nodes.values()}) == 1
    assert len(found.edges) == 999


@pytest.mark.parametrize(
    ("upper", "lower", "lines", "expected"),
    [
        ("ab", "xy", ["ax", "by"], 0),
        ("ab", "xy", ["ay", "bx"], 1),
        ("ab", "xy", ["ax", "ay", "bx", "by"], 1),
        ("abc", "xyz", ["az", "by", "cx"], 3),
        ("ab", "x", ["ax", "bx"], 0),
    ],
)
def test_crossings_are_counted(upper, lower, lines, expected):
    assert crossings(list(upper), list(lower), [tuple(line) for line in lines]) == expected


def test_lines_that_need_not_cross_do_not():
    needs = {"a": [], "b": [], "c": [], "z": ["a"], "y": ["b"], "x": ["c"]}
    found = layout(dict(sorted(needs.items(), key=lambda item: item[0] in "zyx" and -ord(item[0]))))
    order = sorted("xyz", key=lambda node: found.nodes[node].x)
    assert order == sorted("xyz", key=lambda node: found.nodes[needs[node][0]].x)


def test_a_diamond_is_symmetric():
    found = layout({"top": [], "left": ["top"], "right": ["top"], "end": ["left", "right"]})
    nodes = found.nodes
    assert nodes["top"].x == nodes["end"].x == (nodes["left"].x + nodes["right"].x) / 2
    assert nodes["right"].x - nodes["left"].x == SPACING.node_width + SPACING.gap


def test_a_line_over_several_layers_passes_beside_the_nodes_between():
    found = layout({"a": [], "b": ["a"], "c": ["b"], "d": ["c", "a"]})
    (long,) = [edge for edge in found.edges if (edge.source, edge.target) == ("a", "d")]
    for x, y in long.points[1:-1]:
        for node in found.nodes.values():
            is_beside = not node.x < x < node.x + SPACING.node_width
            assert is_beside or not node.y <= y <= node.y + SPACING.node_height


def test_of_too_many_edges_only_those_remain_that_follow_from_no_others():
    count = 40
    dense = {f"s{n}": [f"s{m}" for m in range(n)] for n in range(count)}
    assert count * (count - 1) / 2 > MOST_EDGES
    assert [(edge.source, edge.target) for edge in layout(dense).edges] == [
        (f"s{n}", f"s{n + 1}") for n in range(count - 1)
    ]


def test_many_long_lines_go_straight():
    needs = {f"s{n}": [f"s{n - 1}"] if n else [] for n in range(200)}
    for n in range(100):
        needs[f"s{n + 100}"] = [*needs[f"s{n + 100}"], f"s{n}"]
    found = layout(needs)
    assert len(found.edges) == 299
    assert all(len(edge.points) == 2 for edge in found.edges)


def test_a_graph_that_would_be_too_wide_goes_to_the_right():
    shards = {"start": [], **{f"shard{n}": ["start"] for n in range(12)}, "end": [f"shard{n}" for n in range(12)]}
    found = layout(shards)
    assert found.width < SPACING.widest
    assert found.nodes["start"].x < found.nodes["shard0"].x < found.nodes["end"].x
    assert len({found.nodes[f"shard{n}"].x for n in range(12)}) == 1
    few = layout({"start": [], **{f"shard{n}": ["start"] for n in range(3)}})
    assert few.nodes["start"].y < few.nodes["shard0"].y


def test_a_line_is_written_as_a_path_of_svg():
    found = layout({"a": [], "b": ["a"], "c": ["a"]})
    paths = [edge.path for edge in found.edges]
    assert all(path.startswith("M") and set(path) <= set("MLC 0123456789.-") for path in paths)
    (straight,) = layout({"a": [], "b": ["a"]}).edges
    assert straight.path == "M96 52L96 88"


def test_an_empty_graph_has_no_size():
    found = layout({})
    assert (found.nodes, found.edges) == ({}, [])
    assert found.width > 0
    assert found.height > 0


_GRAPHS = st.integers(0, 24).flatmap(
    lambda count: st.tuples(
        *(
            st.lists(st.integers(0, max(0, number - 1)), max_size=4, unique=True).map(
                lambda above, number=number: (f"n{number}", [f"n{each}" for each in above] if number else [])
            )
            for number in range(count)
        )
    ).flatmap(lambda pairs: st.permutations(pairs).map(dict))
)


@given(_GRAPHS)
@settings(deadline=None)
def test_every_graph_is_drawn_one_way_within_its_frame_and_without_overlap(needs):
    found = layout(needs)
    assert list(found.nodes) == list(needs)
    assert {(edge.source, edge.target) for edge in found.edges} == {
        (need, node) for node, above in needs.items() for need in above
    }
    for node in found.nodes.values():
        assert SPACING.margin <= node.x <= found.width - SPACING.node_width - SPACING.margin + 0.2
        assert SPACING.margin <= node.y <= found.height - SPACING.node_height - SPACING.margin + 0.2
    for one, other in combinations(found.nodes.values(), 2):
        apart = (abs(one.x - other.x) - SPACING.node_width, abs(one.y - other.y) - SPACING.node_height)
        assert max(apart) >= SPACING.gap - 0.2
    for edge in found.edges:
        assert all(one[edge.goes_down] <= other[edge.goes_down] for one, other in pairwise(edge.points))
        assert all(0 <= x <= found.width and 0 <= y <= found.height for x, y in edge.points)
    assert layout(needs) == found
