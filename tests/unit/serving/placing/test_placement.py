"""Which replicas there should be, with places that do what a test says."""

from chairlift.config.options.scaling import make_scaling
from chairlift.serving.placing.placed_node import NodeState
from chairlift.serving.placing.placement import Place, Placement, Stage

WAITING, STARTING = Place(Stage.WAITING), Place(Stage.STARTING)
RUNNING = Place(Stage.RUNNING, NodeState("a", has_left=False))
LEFT = Place(Stage.RUNNING, NodeState("a", has_left=True))


class FakePlaces:
    def __init__(self) -> None:
        self.found: dict[int, Place] = {}
        self.drained: list[int] = []

    def place(self, replica: int) -> None:
        assert replica not in self.found
        self.found[replica] = STARTING

    def look(self, replica: int) -> Place:
        return self.found[replica]

    def drain(self, replica: int) -> None:
        self.drained.append(replica)

    def remove(self, replica: int) -> None:
        del self.found[replica]


class World:
    def __init__(self, count: int, autoscale: str | None = None) -> None:
        self.places, self.said = FakePlaces(), list[str]()
        scaling = None if autoscale is None else make_scaling(autoscale)[0]
        self.placement = Placement(self.places, count, scaling, self.said.append, "2 CPUs")
        self.now = 0.0

    def step(self, load: float | None = None, **found: Place) -> list[str]:
        """What is said in a second in which replicas, as r0, become so."""
        self.places.found |= {int(name[1:]): place for name, place in found.items()}
        self.said.clear()
        self.now += 1
        self.placement.step(self.now, load)
        return list(self.said)


def test_a_busy_replica_is_not_gone() -> None:
    world = World(1)
    assert world.step(r0=RUNNING) == ["replica 0 starts on a"]
    assert world.step(r0=Place(Stage.SILENT)) == []
    assert world.step(r0=RUNNING) == []
    assert world.step(r0=STARTING) == ["replica 0 is gone from a; Ray places it again"]
    assert world.step(r0=Place(Stage.SILENT)) == []
    assert world.step(r0=RUNNING) == ["replica 0 starts on a"]


def test_a_line_says_once_what_became_of_a_replica() -> None:
    world = World(2)
    waits = "replica 1 waits: Ray has no machine with 2 CPUs free"
    assert world.step(r0=RUNNING, r1=WAITING) == ["replica 0 starts on a", waits]
    assert world.step() == []
    assert world.step(r0=STARTING) == ["replica 0 is gone from a; Ray places it again"]
    assert world.step(r1=RUNNING) == ["replica 1 starts on a"]
    assert world.step(r1=WAITING) == ["replica 1 is gone from a; Ray places it again", waits]


def test_a_node_that_ends_is_told_with_its_last_line() -> None:
    world = World(1)
    world.step(r0=RUNNING)
    ended = Place(Stage.RUNNING, NodeState("a", False, 1, "chairlift: error: no such model"))
    said = "the node of replica 0 on a ended and is started again: chairlift: error: no such model"
    assert world.step(r0=ended) == [said]
    assert world.step() == []


def test_what_cannot_be_placed_is_tried_again() -> None:
    world = World(2)
    world.step(r0=RUNNING)
    said = world.step(r1=Place(Stage.FAILED, reason="no chairlift there"))
    assert said == ["replica 1 cannot be placed: no chairlift there; trying again in 10 s"]
    assert list(world.places.found) == [0]
    for _ in range(10):
        assert world.step() == []
    assert list(world.places.found) == [0, 1]


def test_load_starts_replicas_and_its_absence_drains_the_last() -> None:
    world = World(1, "1-3:target=100,up=2,down=3")
    world.step(0, r0=RUNNING)
    said = [line for _ in range(3) for line in world.step(250)]
    assert said == ["3 replicas instead of 1, for a load of 250 tokens"]
    world.step(250, r1=RUNNING, r2=RUNNING)
    said = [line for _ in range(4) for line in world.step(0)]
    assert said == ["1 replica instead of 3, for a load of 0 tokens"]
    assert sorted(world.places.drained) == [1, 2]
    world.step(0, r2=LEFT)
    assert sorted(world.places.found) == [0, 1]
    world.step(0, r1=LEFT)
    assert sorted(world.places.found) == [0]


def test_a_replica_that_waits_for_room_is_the_first_to_be_given_up() -> None:
    world = World(3, "1-3:target=100,up=0,down=0")
    world.step(300, r0=WAITING, r1=RUNNING, r2=RUNNING)
    world.step(200)
    assert sorted(world.places.found) == [1, 2]
    assert world.places.drained == []


def test_without_a_word_of_the_load_nothing_changes() -> None:
    world = World(2, "1-3:target=100,up=0,down=0")
    world.step(None, r0=RUNNING, r1=RUNNING)
    assert world.step(None) == []
    assert sorted(world.places.found) == [0, 1]


def test_at_the_end_all_are_removed() -> None:
    world = World(2)
    world.placement.end()
    assert world.places.found == {}
