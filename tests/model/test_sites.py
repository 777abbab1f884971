"""Sites: names, patterns and the errors for names that do not exist."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import SiteError
from pellucid.model.sites import HEAD_KINDS, KINDS, STACKS, Site, describe, expand, single


def stack_sites(stack: str | None, kinds: tuple[str, ...], layers: int) -> list[Site]:
    return [Site(kind, layer, stack) for layer in range(layers) for kind in kinds]


DECODER = (Site("embed"), *stack_sites(None, ("resid", "pattern", "heads", "neurons"), 6), Site("logits"))
SEQ2SEQ = (
    Site("embed", None, "encoder"),
    *stack_sites("encoder", ("resid", "pattern"), 3),
    Site("embed", None, "decoder"),
    *stack_sites("decoder", ("resid", "pattern"), 4),
    *stack_sites("cross", ("pattern", "heads"), 4),
    Site("logits"),
)


def names(found: tuple[Site, ...]) -> list[str]:
    return [str(site) for site in found]


@st.composite
def any_site(draw) -> Site:
    kind = draw(st.sampled_from(KINDS))
    layer = None if kind in ("embed", "logits") else draw(st.integers(0, 200))
    return Site(kind, layer, draw(st.sampled_from([None, *STACKS])))


@given(any_site())
def test_a_site_is_found_again_by_its_own_name(site):
    others = [Site("embed"), Site("resid", 0), Site("heads", 0, "cross")]
    existing = tuple(dict.fromkeys([*others, site]))
    assert expand(str(site), existing) == (site,)
    assert single(str(site), existing) == site


@given(any_site(), any_site())
def test_sites_are_values(one, other):
    again = Site(one.kind, one.layer, one.stack)
    assert again == one
    assert hash(again) == hash(one)
    assert (one == other) == (str(one) == str(other))
    assert {one: 1}[again] == 1


def test_names_are_written_stack_kind_layer():
    assert str(Site("heads", 3)) == "heads.3"
    assert str(Site("pattern", 1, "cross")) == "cross.pattern.1"
    assert str(Site("embed", None, "encoder")) == "encoder.embed"
    assert str(Site("logits")) == "logits"
    assert str(Site("custom", "my place")) == "my place"


def test_per_head_kinds_are_exactly_those_with_a_head_axis():
    assert {kind for kind in KINDS if kind in HEAD_KINDS} == {"query", "key", "value", "pattern", "heads"}
    assert Site("key", 0).per_head
    assert not Site("neurons", 0).per_head


def test_beside_keeps_stack_and_layer():
    assert Site("attn", 2, "cross").beside("mid") == Site("mid", 2, "cross")
    assert Site("mlp", 2).beside("resid", 3) == Site("resid", 3)


def test_star_takes_every_layer_in_order():
    assert names(expand("resid.*", DECODER)) == [f"resid.{layer}" for layer in range(6)]


def test_range_includes_both_ends():
    assert names(expand("neurons.3-5", DECODER)) == ["neurons.3", "neurons.4", "neurons.5"]


def test_range_is_numeric_not_textual():
    deep = tuple(Site("resid", layer) for layer in range(13))
    assert names(expand("resid.9-11", deep)) == ["resid.9", "resid.10", "resid.11"]
    assert names(expand("resid.1", deep)) == ["resid.1"]


def test_a_stack_pattern_takes_only_its_stack():
    assert names(expand("cross.pattern.*", SEQ2SEQ)) == [f"cross.pattern.{layer}" for layer in range(4)]


def test_star_stack_takes_all_stacks():
    found = expand("*.pattern.*", SEQ2SEQ)
    assert len(found) == 3 + 4 + 4
    assert {site.stack for site in found} == {"encoder", "decoder", "cross"}
    assert {site.kind for site in found} == {"pattern"}


def test_star_stack_also_finds_the_only_stack():
    assert names(expand("*.heads.2", DECODER)) == ["heads.2"]


def test_commas_and_lists_join_in_the_order_asked_each_once():
    wanted = names(expand("heads.2, resid.0,heads.2 ,resid.0-1", DECODER))
    assert wanted == ["heads.2", "resid.0", "resid.1"]
    assert names(expand(["heads.2", Site("embed"), "heads.*"], DECODER))[:3] == [
        "heads.2",
        "embed",
        "heads.0",
    ]


def test_a_plain_name_never_takes_a_stack_of_another():
    with pytest.raises(
        SiteError, match=r"No site matches 'pattern.0'.*Did you mean 'cross.pattern.0'|'encoder.pattern.0'"
    ):
        expand("pattern.0", SEQ2SEQ)


@pytest.mark.parametrize(
    "wanted",
    [
        "head.3",
        "heads.6",
        "heads.-1",
        "heads",
        "heads.3.1",
        "neurons.7-9",
        "neurons.5-3",
        "cross.heads.0",
        "heads.x",
        ".",
    ],
)
def test_names_that_select_nothing_raise_and_list_what_exists(wanted):
    with pytest.raises(SiteError) as caught:
        expand(wanted, DECODER)
    assert wanted in str(caught.value)
    assert "embed, logits, resid.0-5, pattern.0-5, heads.0-5, neurons.0-5" in str(caught.value)


def test_the_nearest_name_is_offered():
    with pytest.raises(SiteError, match=r"Did you mean 'heads.3'\?"):
        expand("haeds.3", DECODER)


def test_one_wrong_name_among_right_ones_raises():
    with pytest.raises(SiteError, match=r"'resid.99'"):
        expand("resid.0,resid.99", DECODER)


def test_a_site_value_that_the_model_lacks_raises():
    with pytest.raises(SiteError, match=r"'heads.40'"):
        expand(Site("heads", 40), DECODER)


def test_unknown_kind_stack_or_missing_layer_cannot_be_made():
    with pytest.raises(SiteError, match=r"called 'residual'; the kinds are embed.*Did you mean 'resid'"):
        Site("residual", 0)
    with pytest.raises(SiteError, match=r"stack called 'middle'; the stacks are encoder, decoder, cross"):
        Site("heads", 0, "middle")
    with pytest.raises(SiteError, match=r"'heads' site needs a layer number"):
        Site("heads")


def test_single_refuses_several():
    with pytest.raises(SiteError, match=r"'resid.\*' means 6 sites"):
        single("resid.*", DECODER)


def test_custom_sites_are_found_by_their_bare_name():
    existing = (Site("custom", "rnn"), Site("custom", "out.1"))
    assert expand("rnn", existing) == (existing[0],)
    assert expand("out.1", existing) == (existing[1],)
    assert expand("*", existing) == existing
    with pytest.raises(SiteError, match=r"No site matches 'rnm'.*rnn, out.1.*Did you mean 'rnn'"):
        expand("rnm", existing)


def test_describe_shows_gaps_as_they_are():
    assert describe([Site("neurons", 0), Site("neurons", 2), Site("heads", 1)]) == "neurons.0,2, heads.1"


@pytest.mark.parametrize("wanted", ["", " , ", [""]])
def test_an_empty_name_never_selects_nothing_silently(wanted):
    with pytest.raises(SiteError):
        expand(wanted, DECODER)


def test_star_alone_selects_every_site():
    assert set(expand("*", DECODER)) == set(DECODER)
    assert set(expand("*", SEQ2SEQ)) == set(SEQ2SEQ)
