"""Makes the tables and pictures of docs/when-which-policy.md: the simulator with the built-in H200 profile.

    python benchmarks/simulation/policy_pages.py [--pictures docs/pictures] [--only NAME]

The contest workload is the built-in one, 1,500 requests of the Alpaca records as the Llama-2 tokenizer counts them; the
other workloads are drawn here.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from chairlift.core.attributes import Attributes
from chairlift.lab.report.frame import picture
from chairlift.lab.sim.comparison.compare import VariantReport, compare, to_text
from chairlift.lab.sim.comparison.picture import charts
from chairlift.lab.sim.comparison.vary import parse_vary, variants
from chairlift.lab.sim.profile import DEFAULT, Profile, load_profile
from chairlift.lab.workload.file import load_items
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Slo

Items = Callable[[], Iterable[Item]]
SLO = Slo(ttft=1.0, tpot=0.05)


class Page:
    def __init__(self, pictures: Path) -> None:
        self._pictures = pictures
        self._profile = load_profile(DEFAULT)
        self.contest = lengths("contest")

    def show(
        self, name: str, title: str, items: Items, vary: Sequence[str], arrivals: str = "none",
        profile: Profile | None = None, **options: str,
    ) -> list[VariantReport]:  # fmt: skip
        """Prints the table and draws the picture of one comparison."""
        started = time.perf_counter()
        wanted = variants(parse_vary(vary), arrivals, options, None, {})
        rows = list(compare(wanted, tuple(items()), profile or self._profile, slo=SLO))
        (self._pictures / f"{name}.svg").write_text(picture(title, charts(rows)))
        seconds = time.perf_counter() - started
        print(f"\n## {name}: {title} ({len(rows)} runs in {seconds:.1f} s)\n{to_text(rows)}")
        return rows

    def order(self) -> None:
        self.show(
            "order", "the contest workload, all at once, 128 running", self.contest,
            ["policy=fcfs,longest-first,shortest-first,similar-length,mlfq", "prefill=mixed,static"], max_running="128",
        )  # fmt: skip

    def width(self) -> None:
        self.show(
            "width", "the contest workload, all at once: order against the size of the running set", self.contest,
            ["policy=fcfs,longest-first,shortest-first", "max-running=32,64,128,256,512,1024"],
        )  # fmt: skip

    def load(self) -> None:
        self.show(
            "load", "the contest workload at rising rates, 128 running", self.contest,
            ["policy=fcfs,longest-first,shortest-first,mlfq",
             "arrivals=" + ",".join(f"poisson:rate={rate}" for rate in (150, 200, 250, 300, 400, 600))],
            max_running="128",
        )  # fmt: skip

    def delay(self) -> None:
        factors = ["prefill=" + ",".join(f"delay:factor={factor}" for factor in (0, 0.5, 1, 2, 4, 8, 16))]
        self.show("delay-short", "delay factor: the contest workload at 180 requests/s, 128 running", self.contest,
                  factors, "poisson:rate=180", max_running="128")  # fmt: skip
        long = lengths("lengths:prompt=500-1500,output=100-300,count=600")
        self.show("delay-long", "delay factor: prompts of 500-1500, outputs of 100-300, 12 requests/s", long,
                  factors, "poisson:rate=12", max_running="128")  # fmt: skip
        alone = ["prefill=" + ",".join(f"delay:exclusive=true,factor={factor}" for factor in (0, 0.5, 1, 2, 4, 8, 16))]
        rates = "arrivals=" + ",".join(f"poisson:rate={rate}" for rate in (180, 250, 400))
        self.show("delay-exclusive", "delay factor, exclusive prompt steps: the contest workload, 128 running",
                  self.contest, [rates, *alone], max_running="128")  # fmt: skip
        self.show("prefill", "prompts of 500-1500, outputs of 100-300, 12 requests/s, 128 running", long,
                  ["prefill=mixed,prefill-first,decode-first,delay:factor=2,batched-prefill,static"],
                  "poisson:rate=12", max_running="128")  # fmt: skip

    def memory(self) -> None:
        long = lengths("lengths:prompt=64-256,output=400-1200,count=300")
        vary = ["preemption=recompute,swap,auto", "num-blocks=1000,1500,2000,3000,4000,6000"]
        self.show("memory", "less and less memory: prompts of 64-256, outputs of 400-1200, 128 running", long, vary,
                  max_running="128")  # fmt: skip
        # A model with an eighth of the KV heads moves an eighth of the bytes.
        cost = self._profile.cost
        lean = replace(self._profile, cost=replace(cost, swap_token_s=cost.swap_token_s / 8))
        self.show("memory-lean", "the same, with an eighth of the bytes to move for a token", long, vary, profile=lean,
                  max_running="128")  # fmt: skip
        self.show("admission", "2000 blocks: how carefully to admit", long,
                  ["admission=prompt,peak,reserve", "preemption=recompute,swap"],
                  max_running="128", num_blocks="2000")  # fmt: skip
        self.show("admission-order", "2000 blocks: how carefully to admit, by the order", long,
                  ["policy=fcfs,longest-first,shortest-first,mlfq", "admission=prompt,peak,reserve"],
                  max_running="128", num_blocks="2000")  # fmt: skip

    def users(self) -> None:
        rows = self.show(
            "users", "one user sends 1,200 requests at once, four send 15 a second each", self.mixed_users,
            ["policy=fcfs,fair-share,shortest-first,mlfq"], "trace", max_running="128",
        )  # fmt: skip
        print("\nmean seconds to the first token, the heavy user and the others:")
        for row in rows:
            heavy = row.report.users["heavy"]
            others = [share for name, share in row.report.users.items() if name != "heavy"]
            mean = sum(share.ttft_mean_s for share in others) / len(others)
            print(f"  {row.variant.label:<16}{heavy.ttft_mean_s:8.3f}{mean:8.3f}")

    def mixed_users(self) -> list[Item]:
        rng = random.Random("users")
        items = []
        for i, item in enumerate(self.contest()):
            user = "heavy" if i % 5 else f"light {i // 5 % 4}"
            items.append(
                replace(
                    item, attributes=Attributes(user=user), arrival_s=0.0 if user == "heavy" else rng.uniform(0.0, 5.0)
                )
            )
        return sorted(items, key=lambda item: item.arrival_s)

    def prefixes(self) -> None:
        self.show(
            "prefixes", "60 prefixes of 1,024 tokens, 10 requests each in random order, 32 running", shared_prefixes,
            ["policy=fcfs,longest-prefix:window=32,longest-prefix:window=256", "num-blocks=3500,5000,7500,10000"],
            max_running="32",
        )  # fmt: skip


def lengths(spec: str) -> Items:
    return lambda: load_items(spec)


def shared_prefixes() -> Iterator[Item]:
    rng = random.Random("prefixes")
    order = [group for group in range(60) for _ in range(10)]
    rng.shuffle(order)
    for i, group in enumerate(order):
        own = 1000 + i
        yield Item(
            prompt_tokens=1024 + 128, output_tokens=rng.randint(50, 150), hash_ids=(2 * group, 2 * group + 1, own)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, default=Path("docs/pictures"), metavar="FOLDER")
    names = ("order", "width", "load", "delay", "memory", "users", "prefixes")
    parser.add_argument("--only", choices=names)
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    page = Page(options.pictures)
    for name in names:
        if options.only in (None, name):
            getattr(page, name)()


if __name__ == "__main__":
    main()
