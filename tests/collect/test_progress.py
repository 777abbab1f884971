"""Progress: what is done, in its own unit."""

from __future__ import annotations

from pellucid.collect.progress import Progress


def test_progress_counts_what_is_done(capfd):
    with Progress(True) as shown:
        shown.begin("training the probe", 4, unit="epochs")
        shown.advance(2)
    with Progress(True) as shown:
        shown.begin("Sweeping", 4)
        shown.advance(2)
    told = capfd.readouterr().err
    assert "epochs/s" in told
    assert "tokens/s" in told
