"""The pages name the commands, losses and files that exist."""

import re
from pathlib import Path

import pytest

from biosqueeze import __version__, registry
from biosqueeze.distillation.losses.presets import LOSS_PRESETS
from biosqueeze.models.named.presets import PRESETS

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "examples" / "guides"
PAGES = [ROOT / "README.md", *ROOT.glob("recipes/*.md"), *ROOT.glob("biosqueeze/*.md"), *ROOT.glob("examples/**/*.md")]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def first_cells(page: Path, heading: str) -> set[str]:
    """Return the names in code in the first column of the tables below a heading."""
    section = text_of(page).partition(f"## {heading}")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}


def test_the_readme_is_a_front_page() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= 900


def test_the_readme_lists_every_command() -> None:
    commands = text_of(ROOT / "README.md").partition("## Commands")[2].partition("\n## ")[0]
    listed = re.findall(r"^\|[^|]*\| `(\w+)` \|", commands, flags=re.MULTILINE)
    assert sorted(listed) == sorted([*registry.names("stages"), "run"])


def test_the_guide_lists_every_preset_and_loss() -> None:
    page = GUIDES / "choose_losses.md"
    assert first_cells(page, "Presets") - {"--loss"} == set(LOSS_PRESETS)
    assert first_cells(page, "Single losses") - {"--loss"} == set(registry.names("objectives"))


@pytest.mark.parametrize("name", registry.names("objectives"))
def test_the_guide_says_which_losses_read_hidden_states(name: str) -> None:
    loss = registry.load("objectives", name)
    row = re.search(rf"^\| .*`{name}`.* \| (.+) \|$", text_of(GUIDES / "choose_losses.md"), re.MULTILINE)
    assert row
    assert ("hidden states" in row[1] or "embedding outputs" in row[1]) == (loss.READS == "hidden")


def test_the_guide_lists_every_student() -> None:
    assert first_cells(GUIDES / "distil_on_plain_text.md", "Students") - {"--student"} == set(PRESETS)


def test_the_guide_lists_every_task() -> None:
    assert first_cells(GUIDES / "finetune_and_search.md", "Tasks") - {"--task"} == set(registry.names("tasks"))


def test_the_recipes_page_lists_every_recipe() -> None:
    listed = re.findall(r"`(\w+\.toml)`", text_of(ROOT / "recipes" / "README.md").partition("## Files")[2])
    assert sorted(listed) == sorted(path.name for path in (ROOT / "recipes").glob("*.toml"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text_of(page)):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if anchor:
            source = linked / "README.md" if linked.is_dir() else linked
            headings = re.findall(r"^#+ (.+)$", text_of(source), flags=re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, (target, anchor)


@pytest.mark.parametrize("mark", ["quickstart", "tests"])
def test_ci_finds_its_commands_in_the_readme(mark: str) -> None:
    assert re.search(rf"<!-- ci: {mark} -->\n```bash\n.+\n```", text_of(ROOT / "README.md"))


def test_the_changelog_starts_with_unreleased() -> None:
    sections = re.findall(r"^## \[(.+?)\]", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert sections[1:2] in ([], [__version__])  # the last release
