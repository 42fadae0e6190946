"""Adapters that queue for a slot."""

from chairlift.core.plan import AdapterSlot
from chairlift.core.scheduling.adapter_slots import AdapterSlots


def used(slots: AdapterSlots, *adapters: int) -> None:
    """Requests of them run, and a plan has loaded them."""
    for adapter in adapters:
        slots.add(adapter)
        slots.enter(adapter, adapters)
    slots.of_plan(())


def test_those_that_queue_may_enter_once_a_plan_has_loaded_them() -> None:
    slots = AdapterSlots(2)
    used(slots, 1, 2)
    for adapter in (3, 4):
        slots.add(adapter)
        slots.wait(adapter, (1, 2))
    assert slots.turn((1, 2), is_busy=True) == []  # no slot is free
    slots.remove(1)
    assert slots.turn((2,), is_busy=True) == []  # the first has the slot, which this plan loads
    assert slots.of_plan(())[1] == (AdapterSlot(3, 0),)
    assert slots.turn((2,), is_busy=True) == [3]
    assert [*slots.queue] == [4]


def test_with_nothing_to_wait_for_the_same_plan_loads_and_lets_in() -> None:
    slots = AdapterSlots(1)
    slots.add(1)
    slots.wait(1, ())
    assert slots.turn((), is_busy=False) == [1]
