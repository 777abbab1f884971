"""The house style of figures: quiet lines, colours that colour-blind readers tell apart, chance always in grey."""

from __future__ import annotations

import io
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pellucid.results import Coordinate, ResultError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of Okabe and Ito, for lines and bars."""
CHANCE = "#8A8A8A"
NOTE = "#6B6B6B"
INK = "#333333"
FAINT = "#D9D9D9"
_ROOM = 0.07  # inches around every panel
FORMATS = ("svg", "png", "pdf")

_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "text.color": INK,
    "text.usetex": False,
    "text.hinting": "none",  # hinted letters have other widths at every resolution
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # letters stay text: browsers draw every script, and readers can search it
    "svg.hashsalt": "pellucid",
    "pdf.fonttype": 42,
}


@contextmanager
def house_style() -> Generator[None]:
    """The settings under which a figure is drawn and saved; those of the caller come back afterwards."""
    import matplotlib

    with matplotlib.rc_context():  # restores what it finds
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(_SETTINGS)
        yield


@contextmanager
def _letters_as_text() -> Generator[None]:
    """No warning of letters that matplotlib's font lacks: where text stays text, the reader's own fonts draw them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of its own, in inches; it belongs to no window, and goes when it is dropped."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=_ROOM, h_pad=_ROOM)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def settled(figure: Figure) -> Figure:
    """A finished figure whose ticks and parts keep their places: drawn again, at any size of dot, it is the same."""
    engine = figure.get_layout_engine()
    assert engine is not None
    with _letters_as_text():
        engine.execute(figure)
        for axes in figure.axes:
            for inner in (axes, *axes.child_axes):
                _keep_ticks(inner.xaxis)
                _keep_ticks(inner.yaxis)
        engine.execute(figure)
    figure.set_layout_engine("none")
    return figure


def _keep_ticks(axis: Any) -> None:
    """The ticks that were chosen, fixed: matplotlib would choose anew for another resolution."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    places = [float(place) for place in axis.get_majorticklocs() if low - slack <= place <= high + slack]
    axis.set_ticks(places, labels=axis.get_major_formatter().format_ticks(places), parse_math=False)


def thinned(coordinates: Sequence[Coordinate], most: int) -> list[int]:
    """Places of the ticks to show: all of few, else every second, fifth, tenth … so that at most `most` remain."""
    count = len(coordinates)
    step = next(
        step for scale in range(12) for step in (10**scale, 2 * 10**scale, 5 * 10**scale) if count <= step * most
    )
    return list(range(0, count, step))


def sequential() -> Any:
    """Colours for amounts, light for little: a part of matplotlib's magma, perceptually uniform, without its black."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["magma_r"]([place / 300 for place in range(256)]), "pellucid")


def label_ticks(axis: Any, coordinates: Sequence[Coordinate], most: int) -> None:
    """Ticks named after coordinates, thinned; names are taken literally, never as formulas."""
    places = thinned(coordinates, most)
    axis.set_ticks(places, labels=[str(coordinates[place]) for place in places], parse_math=False)


def grid_lines(axes: Axes, axis: str) -> None:
    """Faint lines behind the data."""
    axes.grid(visible=True, axis=axis, color=FAINT, linewidth=0.5)  # pyright: ignore[reportArgumentType]
    axes.set_axisbelow(True)


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as the bytes of an svg, png or pdf file: the same figure always gives the same bytes."""
    if kind not in FORMATS:
        raise ResultError(f"A figure cannot be saved as {kind!r}; use one of {', '.join(FORMATS)}.")
    nothing: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    content = io.BytesIO()
    with house_style(), _letters_as_text() if kind == "svg" else nullcontext():
        figure.savefig(content, format=kind, dpi=200, metadata=nothing[kind])
    return content.getvalue()


def figure_svg(figure: Figure) -> str:
    """A figure as an SVG element, to stand in a file of its own or inside HTML."""
    text = figure_bytes(figure, "svg").decode()
    return text[text.index("<svg") :]
