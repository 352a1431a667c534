"""An agent that shops, reports what came of it, and gets better. Needs no model.

The shop shows colours; which brand is of which material only a purchase tells. The agent
reads the cases that `recall` returns: the task in the first line, an action in each
further one, and the outcome as a tag.

python examples/shop_agent.py [DESIGN]      (exp_rag; verbatim keeps no cases)
"""

import re
import sys
from collections.abc import Sequence
from random import Random

from environments.acting.task import ActingTask, open_tasks
from memagent import Agent
from memagent.extend import TrialStep

RNG = Random(0)


def choose(task: str, offers: str, cases: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return the action: a brand known to fit, else one that is not known to fail."""
    wish = re.fullmatch(r"buy a (\w+) (\w+) of (\w+)", task)
    assert wish is not None, task
    colour, thing, material = wish.groups()
    if not offers:
        return f"search {thing}"
    brands = re.findall(rf"(\w+) in {colour}", offers)
    known = {
        brand: "succeeded" in tags
        for text, tags in cases
        for brand in re.findall(r"buy (\w+) \w+$", text)
        if f"of {material}\n" in text
    }
    good = [brand for brand in brands if known.get(brand)]
    untried = [brand for brand in brands if brand not in known]
    return f"buy {RNG.choice(good or untried or brands)} {thing}"


def shop(agent: Agent, task: ActingTask) -> bool:
    """Do one task with what memory has for it, report, and return whether it was solved."""
    recall = agent.recall(task.text, k=40)
    cases = [(hit.item.text, hit.item.tags) for hit in recall.hits if hit.item is not None]
    seen, steps = task.reset(0), list[TrialStep]()
    while not seen.done:
        action = choose(task.text, steps[-1].observation if steps else "", cases)
        seen = task.step(action)
        steps.append(TrialStep(action=action, observation=seen.text, reward=seen.reward))
    agent.report(recall, steps[-1].reward or 0.0, success=seen.success, steps=steps)
    return bool(seen.success)


if __name__ == "__main__":
    with Agent(path=":memory:", design=[*sys.argv, "exp_rag"][1]) as agent:
        won = [shop(agent, task) for task in open_tasks("tiny_shop", seed=1)]
    for name, part in (("first", won[:20]), ("last", won[-20:])):
        sys.stdout.write(f"{name} 20 tasks: {sum(part)} solved\n")
