"""Ways of ranking neurons: their names, what their scores mean, and what chance gives. A new one is one entry here."""

from __future__ import annotations

from dataclasses import dataclass

LABEL = "label"
"""The concept that is looked for unless another is named: what arrays, and many files of sentences, call it."""


@dataclass(frozen=True)
class Method:
    """How a method is told: `title` follows "by", `score` is one number in words, `chance` what it is without a link.

    `home` is `module:function`, called as `function(source, corpus, concept=…, sites=…, seed=…)` and giving a Ranking.
    `gather` is the same of the collectors that it reads from a sweep; without one the method takes the source itself
    (a store, or a model and a corpus), and `pooling=` too where it is `pooled`.
    """

    title: str
    score: str
    chance: str
    home: str = ""
    gather: str | None = None
    pooled: bool = False

    @property
    def reads(self) -> bool:
        """Whether it reads what neurons say of words; ablation runs the model's own task instead."""
        return self.gather is not None or self.pooled


RANKINGS: dict[str, Method] = {
    "probeless": Method(
        "differences of class means (Probeless)",
        "summed distance of the class's mean activation from the other classes' means; the sign says on which side",
        "the expected distance of class means when labels are dealt out at random",
        "pellucid.neurons.probeless:probeless",
        "pellucid.neurons.class_sums:class_collectors",
    ),
    "iou": Method(
        "overlap of firing and concept (IoU)",
        "intersection over union of the words it fires on and the class's words; negative where it fires low",
        "labels dealt out at random among words, at the better end; overall, for the best class",
        "pellucid.neurons.overlap:iou",
        "pellucid.neurons.histograms:histogram_collectors",
    ),
    "precision": Method(
        "average precision of the activation",
        "average precision of its activation as a detector of the class; negative where low values detect it",
        "labels dealt out at random among words, at the better end; overall, for the best class",
        "pellucid.neurons.precision:precision",
        "pellucid.neurons.histograms:histogram_collectors",
    ),
    "selectivity": Method(
        "distance from the rest in standard deviations (selectivity)",
        "d′: the class's mean less the other words', over the spread inside both",
        "the expected |d′| when labels are dealt out at random; overall, that of the best class",
        "pellucid.neurons.selectivity:selectivity",
        "pellucid.neurons.class_sums:class_collectors",
    ),
    "probe-elastic": Method(
        "weights of a probe with elastic net",
        "weight of the standardised neuron in a linear probe of the class",
        "size of its weight in the control task, where every word type has a random class",
        "pellucid.neurons.probing.probes:by_elastic_probe",
        pooled=True,
    ),
    "probe-l1": Method(
        "weights of a probe with an L1 penalty",
        "weight of the standardised neuron in a linear probe of the class",
        "size of its weight in the control task, where every word type has a random class",
        "pellucid.neurons.probing.probes:by_l1_probe",
        pooled=True,
    ),
    "probe-l2": Method(
        "weights of a probe with an L2 penalty",
        "weight of the standardised neuron in a linear probe of the class",
        "size of its weight in the control task, where every word type has a random class",
        "pellucid.neurons.probing.probes:by_l2_probe",
        pooled=True,
    ),
    "gaussian": Method(
        "Gaussians of the classes, neurons chosen one by one",
        "1 over the place at which it was chosen (0: not chosen); the sign is that of the class's mean",
        "the mean over all neurons, as in a random order",
        "pellucid.neurons.probing.gaussian:by_gaussians",
        pooled=True,
    ),
    "ablation": Method(
        "what the model's answers lose without them",
        "mean of (p − p')/p: the share of its probability that the model's answer loses without the neuron",
        "0: the neuron changes nothing",
        "pellucid.neurons.judging.ablation:by_ablation",
    ),
    "ablation-greedy": Method(
        "removal one after another",
        "1 over the step at which it was removed (0: it stayed)",
        "the mean over all neurons, as in a random order",
        "pellucid.neurons.judging.ablation:by_greedy_ablation",
    ),
    "forest": Method(
        "Gini importance in random forests",
        "share of the forest's gain in purity at splits by the neuron, of which each class has its part; the sign is "
        "that of the class's mean",
        "the same in a forest of shuffled labels",
        "pellucid.neurons.probing.forest:forest",
        pooled=True,
    ),
}
"""Every method by the name that `pellucid neurons rank --method` takes."""


OF_RANKINGS: dict[str, Method] = {
    "vote": Method(
        "a vote of rankings (Borda)",
        "mean share of neurons that it stands before; the sign is that of most rankings",
        "½: a random order",
    ),
}
"""Ways of making one ranking of several, which read no model."""


SEARCHES: dict[str, Method] = {
    "maxcorr": Method(
        "their likes in other models (MaxCorr)",
        "largest |correlation| with any neuron of the other models",
        "unrelated neurons: a scale, not a test",
    ),
    "mincorr": Method(
        "their likes in every other model (MinCorr)",
        "largest |correlation| with the neurons of each other model, and of these the smallest",
        "unrelated neurons: a scale, not a test",
    ),
    "linreg": Method(
        "how well other models tell them (LinReg)",
        "share of its variance that a linear map of another model's site explains, at the best site",
        "unrelated neurons: a scale, not a test",
    ),
    "svcca": Method(
        "directions of theirs that other models have (SVCCA)",
        "canonical correlation of a direction with one of another model's site, among those that hold 99% of the "
        "variance",
        "unrelated directions: a scale, not a test",
    ),
}
"""Searches through several models, which need no concept: `pellucid.neurons.search`."""


def described(name: str) -> Method:
    """The method of a name; one that is not ours is told by its name alone."""
    return {**RANKINGS, **OF_RANKINGS, **SEARCHES}.get(name, Method(name or "an unnamed method", "score", "chance"))
