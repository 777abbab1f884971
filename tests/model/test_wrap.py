"""Models that are not transformers: an LSTM, a CNN and tables of word vectors under the same interface."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pellucid.errors import EditError, ModelError, PellucidError, SiteError, TextError
from pellucid.model import Edit, Model
from tests.tiny_models import error, hook_count

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


class Tagger(nn.Module):
    """A recurrent tagger."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.rnn = nn.LSTM(4, 5, batch_first=True)
        self.out = nn.Linear(5, 3)

    def forward(self, ids, shift=0.0):
        states, _ = self.rnn(self.embed(ids))
        return self.out(states) + shift


class Pictures(nn.Module):
    """A convolutional classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 2))

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)))


@pytest.fixture
def tagger():
    torch.manual_seed(0)
    sites = {
        "embed": "embed",
        "states": "rnn",
        "last": "rnn:1.0",
        "cell": "rnn:1.1",
        "given": "rnn:input",
        "scores": "out",
    }
    return Model.wrap(Tagger(), sites=sites, tokenize=lambda texts: IDS if texts else None)


def test_sites_of_a_recurrent_network_hold_what_its_modules_gave(tagger):
    run = tagger.run(IDS, "*")
    net = tagger.hf
    with torch.no_grad():
        embedded = net.embed(IDS)
        states, (last, cell) = net.rnn(embedded)
        expected = {
            "embed": embedded,
            "given": embedded,
            "states": states,
            "last": last,
            "cell": cell,
            "scores": net.out(states),
        }
    assert {str(site) for site in run} == set(expected)
    for name, value in expected.items():
        assert torch.equal(run[name], value), name
    assert torch.equal(run.output, expected["scores"])
    assert [str(site) for site in tagger.sites] == ["embed", "states", "last", "cell", "given", "scores"]


def test_edits_of_a_recurrent_network(tagger):
    before, hooks = tagger.run(IDS).output, hook_count(tagger.hf)
    run = tagger.run(IDS, "states", Edit.zero("states", neurons=[1, 3], positions=[-1]))
    assert not run["states"][:, 3, [1, 3]].any()
    expected = tagger.run(IDS, "states")["states"].clone()
    expected[:, 3, [1, 3]] = 0
    with torch.no_grad():
        assert torch.allclose(run.output, tagger.hf.out(expected), atol=1e-6)
    assert torch.equal(tagger.run(IDS).output, before)
    assert hook_count(tagger.hf) == hooks


def test_editing_the_input_of_a_module_changes_what_it_computes(tagger):
    run = tagger.run(IDS, "states", Edit.set("given", 0.0))
    with torch.no_grad():
        assert torch.equal(run["states"], tagger.hf.rnn(torch.zeros(2, 4, 4))[0])


def test_gradients_of_a_recurrent_network(tagger):
    run = tagger.run(IDS, ["embed", "states"], gradients=True)
    slope, by_states = torch.autograd.grad((run.output**2).sum(), [run["embed"], run["states"]])
    assert torch.allclose(by_states, 2 * run.output @ tagger.hf.out.weight, atol=1e-5)
    step = torch.zeros_like(slope)
    step[1, 2, 3] = 1e-2
    up, down = ((tagger.run(IDS, (), Edit.add("embed", sign * step)).output.double() ** 2).sum() for sign in (1, -1))
    assert float(slope[1, 2, 3]) == pytest.approx(float(up - down) / 2e-2, rel=1e-2)


def test_a_gate_on_recurrent_units_gets_a_gradient(tagger):
    gate = torch.ones(5, requires_grad=True)
    run = tagger.run(IDS, (), Edit.gate("states", gate), gradients=True)
    assert torch.autograd.grad(run.output.sum(), gate)[0].all()


def test_text_goes_through_the_users_function(tagger):
    assert torch.equal(tagger.run("any words", "embed")["embed"], tagger.run(IDS, "embed")["embed"])


def test_a_tuple_or_dictionary_of_inputs(tagger):
    expected = tagger.run(IDS).output + 2
    assert torch.equal(tagger.run({"ids": IDS, "shift": torch.tensor(2.0)}).output, expected)
    assert torch.equal(tagger.run((IDS, torch.tensor(2.0))).output, expected)


def test_sites_edits_and_gradients_of_a_convolutional_classifier():
    torch.manual_seed(0)
    model = Model.wrap(Pictures(), sites={"maps": "conv", "scores": "head.1", "flat": "head.1:input"})
    picture = torch.randn(2, 1, 6, 6)
    run = model.run(picture, ["maps", "flat"], gradients=True)
    assert run["maps"].shape == (2, 3, 4, 4)
    assert torch.equal(run["flat"], torch.relu(run["maps"]).flatten(1))
    (slope,) = torch.autograd.grad(run.output[:, 0].sum(), run["maps"])
    assert torch.equal(slope != 0, run["maps"] > 0)
    edited = model.run(picture, (), Edit.zero("flat", neurons=range(16))).output
    weight, bias = model.hf.head[1].weight.detach(), model.hf.head[1].bias.detach()
    assert error(edited, run["flat"].detach()[:, 16:] @ weight[:, 16:].T + bias) < 1e-5


def test_mean_over_a_layer_without_tokens_is_over_the_batch():
    model = Model.wrap(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), sites={"hidden": "1"})
    x = torch.randn(5, 3)
    plain = model.run(x, "hidden")["hidden"]
    got = model.run(x, "hidden", Edit.mean("hidden", neurons=[2]))["hidden"]
    assert torch.allclose(got[:, 2], plain[:, 2].mean().expand(5))
    assert torch.equal(got[:, [0, 1, 3]], plain[:, [0, 1, 3]])


@pytest.mark.parametrize(
    ("sites", "complaint"),
    [
        ({}, "needs at least one site"),
        ({"a": "rnm"}, r"points to 'rnm', and there is no such module; there are embed, rnn, out"),
        ({"a": "rnn:output"}, r"ends in ':output'; write ':input'"),
    ],
)
def test_bad_paths_are_refused_when_wrapping(sites, complaint):
    with pytest.raises(SiteError, match=complaint):
        Model.wrap(Tagger(), sites=sites)


@pytest.mark.parametrize("path", ["rnn:7", "rnn:1.5", "rnn:1", "rnn:0.0.0.0.0"])
def test_parts_of_an_output_that_do_not_exist_are_refused(path):
    with pytest.raises(PellucidError):
        Model.wrap(Tagger(), sites={"a": path}).run(IDS, "a")


class Unused(nn.Module):
    """Has a module that its forward never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)


def test_a_site_that_never_passes_is_an_error_not_an_empty_answer():
    model = Model.wrap(Unused(), sites={"idle": "idle", "used": "used"})
    x = torch.ones(1, 2)
    with pytest.raises(PellucidError, match="idle"):
        model.run(x, ["used", "idle"])
    with pytest.raises(PellucidError, match="idle"):
        model.run(x, (), Edit.zero("idle"))


class Twice(nn.Module):
    """Calls one module two times."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 3, batch_first=True)

    def forward(self, x):
        return self.rnn(self.rnn(x)[0])[0]


@pytest.mark.parametrize("path", ["rnn", "rnn:0"])
def test_a_module_that_is_called_twice_shows_its_first_call(path):
    model = Model.wrap(Twice(), sites={"a": path})
    x = torch.randn(2, 4, 3)
    with torch.no_grad():
        first = model.hf.rnn(x)[0]
    assert torch.equal(model.run(x, "a")["a"], first)
    edited = model.run(x, (), Edit.set("a", 0.0)).output
    with torch.no_grad():
        assert torch.equal(edited, model.hf.rnn(torch.zeros(2, 4, 3))[0])


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (Edit.zero("states", neurons=5), SiteError),
        (Edit.zero("states", positions=4), SiteError),
        (Edit.zero("nowhere"), SiteError),
        (Edit.set("states", torch.ones(7)), EditError),
        (Edit("states", "blur"), EditError),
    ],
)
def test_edits_that_do_not_fit_are_refused(tagger, edit, kind):
    with pytest.raises(kind):
        tagger.run(IDS, (), edit)
    assert hook_count(tagger.hf) == 0


def test_what_a_wrapped_module_cannot_do_is_said(tagger):
    with pytest.raises(TextError, match="wrapped without tokenize"):
        Model.wrap(Tagger(), sites={"a": "rnn"}).run("text")
    with pytest.raises(TextError, match="run on a tensor, a tuple or a dictionary of tensors, not on a int"):
        tagger.run(3)
    with pytest.raises(ModelError, match="no configuration to build a random one"):
        Model.random_like(tagger)
    with pytest.raises(ModelError, match="cannot generate"):
        tagger.generate(IDS)


# -- word vectors ----------------------------------------------------------------------------------------------


def written(folder, text):
    path = folder / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("text", ["the 1 2\nCat -3 4e-1\n", "2 2\nthe 1 2 \nCat -3 4e-1 \n", "the 1 2\r\nCat -3 .4"])
def test_word_vectors_are_read_with_and_without_counts(tmp_path, text):
    model = Model.vectors(written(tmp_path, text))
    got = model.run(["the Cat", "dog the"], "embed")["embed"]
    expected = torch.tensor([[[1.0, 2.0], [-3.0, 0.4]], [[0.0, 0.0], [1.0, 2.0]]])
    assert torch.equal(got, expected)


def test_unknown_words_use_the_files_own_row_for_them(tmp_path):
    model = Model.vectors(written(tmp_path, "<unk> 7 8\nthe 1 2\n"))
    assert model.run("dog THE", "embed")["embed"].tolist() == [[[7.0, 8.0], [1.0, 2.0]]]


def test_a_repeated_word_keeps_its_first_vector(tmp_path):
    model = Model.vectors(written(tmp_path, "the 1 2\ncat 5 6\nthe 3 4\n"))
    assert model.run("the cat", "embed")["embed"].tolist() == [[[1.0, 2.0], [5.0, 6.0]]]


def test_word_vectors_can_be_edited_and_have_gradients(tmp_path):
    model = Model.vectors(written(tmp_path, "the 1 2\ncat 3 4\n"))
    assert model.run("the cat", (), Edit.zero("embed", neurons=0)).output.tolist() == [[[0.0, 2.0], [0.0, 4.0]]]
    run = model.run("the cat", "embed", gradients=True)
    (slope,) = torch.autograd.grad((run.output**2).sum(), run["embed"])
    assert slope.tolist() == [[[2.0, 4.0], [6.0, 8.0]]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("the 1 2\ncat 3\n", "line 2: 1 numbers where the lines before have 2"),
        ("the 1 2\ncat 3 x\n", "line 2: not a word followed by numbers"),
        ("the\n", "line 1"),
        ("", "holds no vectors"),
        ("2 2\n", "holds no vectors"),
        ("3 2\nthe 1 2\ncat 3 4\n", "3"),
        ("2 3\nthe 1 2\ncat 3 4\n", "3"),
        ("the 1 nan\n", "line 1"),
        (b"th\xe9 1 2\n", ""),
    ],
)
def test_broken_files_name_the_line(tmp_path, text, complaint):
    with pytest.raises(ModelError) as caught:
        Model.vectors(written(tmp_path, text))
    assert complaint in str(caught.value)
    assert "vectors.txt" in str(caught.value)


def test_a_missing_file_and_empty_text_are_refused(tmp_path):
    with pytest.raises(ModelError, match="There is no file"):
        Model.vectors(tmp_path / "nowhere.txt")
    model = Model.vectors(written(tmp_path, "the 1 2\n"))
    for nothing in ("", "  ", []):
        with pytest.raises(TextError):
            model.run(nothing)
