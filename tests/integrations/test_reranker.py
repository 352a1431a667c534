"""A reranker has the last word on the best hits, and a cross-encoder from a folder is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from memagent.build import build_reranker, open_store
from memagent.config import (
    AgentSettings,
    CrossEncoderSettings,
    MemoryStoreSettings,
    PluginSettings,
)
from memagent.core.answers import Query
from memagent.core.errors import ConfigError, ModelError
from memagent.core.recipes import Recipe
from memagent.core.records import Scope
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.testing import check_reranker

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] maria adopted a puppy in march what did the report is due on friday word half".split()


class LongestFirst:
    """Scores a text by its length."""

    def __init__(self, *, sign: int = 1) -> None:
        self.sign = sign
        self.asked: list[int] = []

    @property
    def id(self) -> str:
        return "longest-first"

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.asked.append(len(texts))
        return [float(self.sign * len(text)) for text in texts]


class Broken(LongestFirst):
    """Forgets a text."""

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.0] * (len(texts) - 1)


async def memory(reranker: LongestFirst | None) -> Memory:
    made = Memory(MemoryBank(embedder=HashEmbedder(dim=32), reranker=reranker))
    for i in range(12):
        await made.add(f"the boat {'very ' * i}late")
    return made


async def test_the_reranker_orders_the_best_and_the_others_follow_as_they_were() -> None:
    reranker = LongestFirst()
    made = await memory(reranker)
    plain = await made.search("boat", k=12, recipe=Recipe())
    hits = await made.search("boat", k=12, recipe=Recipe(rerank=12))
    assert [len(hit.text) for hit in hits] == sorted((len(hit.text) for hit in plain), reverse=True)
    assert reranker.asked == [12]
    assert all(hit.why.rerank == float(len(hit.text)) and hit.why.fused for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    few = await made.search("boat", k=3, recipe=Recipe(rerank=4))
    assert {hit.id for hit in few} <= {hit.id for hit in plain[:4]}


async def test_without_a_reranker_nothing_is_reranked() -> None:
    made = await memory(None)
    first, again = [await made.search("boat", recipe=Recipe(rerank=rerank)) for rerank in (10, 0)]
    assert [hit.id for hit in first] == [hit.id for hit in again]
    assert first[0].why.rerank is None


async def test_forks_and_views_of_the_past_keep_the_reranker() -> None:
    made = await memory(LongestFirst())
    fork = await made.fork()
    hits = await fork.bank.search(Query(text="boat", recipe=Recipe(rerank=12)), k=12)
    assert hits[0].why.rerank == max(len(hit.text) for hit in hits)


async def test_a_reranker_that_answers_wrongly_is_a_model_error() -> None:
    made = await memory(Broken())
    with pytest.raises(ModelError, match="gave 11 scores for 12 texts"):
        await made.search("boat", k=12, recipe=Recipe(rerank=12))


async def test_settings_name_a_reranker_and_a_recipe() -> None:
    settings = AgentSettings.model_validate(
        {
            "store": {"type": "memory"},
            "embedder": {"type": "hashing"},
            "recipe": "deep",
            "reranker": {
                "type": "plugin",
                "name": f"{__name__}:LongestFirst",
                "options": {"sign": -1},
            },
        }
    )

    store = open_store(settings)
    agent = store.agent(Scope(user_id="ana"))
    for text in ("the boat is late", "the boat", "the boat is very late today"):
        await agent.memory.add(text)
    assert (await agent.search("boat"))[0].text == "the boat"
    store.close()
    assert isinstance(settings.store, MemoryStoreSettings)


def test_what_is_no_reranker_is_refused() -> None:
    with pytest.raises(ConfigError, match="a reranker has id and score"):
        build_reranker(PluginSettings(name="builtins:dict"))


async def test_the_kit_finds_what_is_wrong() -> None:
    await check_reranker(LongestFirst)
    with pytest.raises(AssertionError, match="as many finite numbers"):
        await check_reranker(Broken)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of two small layers with drawn weights, saved as its library saves one."""
    pytest.importorskip(
        "sentence_transformers", reason='needs the extra: pip install "memagent[embeddings]"'
    )
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("cross-encoder")
    (folder / "vocab.txt").write_text(
        "\n".join([*WORDS, *"abcdefghijklmnopqrstuvwxyz?!.-"]) + "\n", encoding="utf-8"
    )
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS) + 30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder


async def test_a_cross_encoder_keeps_the_contract(tiny_model: Path) -> None:
    from memagent.embed.local_models import CrossEncoderReranker

    await check_reranker(lambda: CrossEncoderReranker(tiny_model, offline=True))


async def test_a_cross_encoder_puts_hits_in_the_order_of_its_scores(tiny_model: Path) -> None:
    from memagent.embed.local_models import CrossEncoderReranker

    reranker = CrossEncoderReranker(tiny_model)
    made = Memory(MemoryBank(embedder=HashEmbedder(dim=32), reranker=reranker))
    for text in (
        "maria adopted a puppy",
        "the report is due on friday",
        "what did maria adopted in march",
        "half a word",
    ):
        await made.add(text)
    hits = await made.search("maria puppy", recipe=Recipe(rerank=4))
    scores = await reranker.score("maria puppy", [hit.text for hit in hits])
    assert scores == sorted(scores, reverse=True)
    assert [hit.why.rerank for hit in hits] == pytest.approx(scores, abs=1e-4)
    assert len(set(scores)) == len(scores)


def test_a_model_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    pytest.importorskip(
        "sentence_transformers", reason='needs the extra: pip install "memagent[embeddings]"'
    )
    from memagent.embed.local_models import CrossEncoderReranker

    with pytest.raises(ConfigError, match=r"reranking model folder .* does not exist"):
        CrossEncoderReranker(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="did not load"):
        CrossEncoderReranker(tmp_path / "empty")


def test_the_settings_of_a_cross_encoder_lead_to_one(tiny_model: Path) -> None:
    from memagent.plugins import available

    if "cross-encoder" not in available("rerankers"):
        pytest.skip("pyproject.toml changed after the install: run `pip install -e .` again")
    made = build_reranker(CrossEncoderSettings(model=str(tiny_model), offline=True))
    assert made.id.startswith(tiny_model.name)
